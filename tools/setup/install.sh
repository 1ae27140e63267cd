#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, and nothing when nothing is: Debian packages by name and, for tests, a pinned Python
# environment in .venv. Usage: install.sh serve|test
set -euo pipefail
cd "$(dirname "$0")/../.."
want=${1:-serve}
case $want in serve | test) ;; *) echo "install.sh: serve or test, not '$want'" >&2; exit 2 ;; esac

if ! command -v dpkg-query >/dev/null; then
  echo "install.sh: this is not Debian; install the packages of tools/setup/apt-packages.txt by hand" >&2
  exit 2
fi

missing=()
while read -r kind package _; do
  [[ -z $kind || $kind == \#* ]] && continue
  [[ $kind == test && $want == serve ]] && continue
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || missing+=("$package")
done <tools/setup/apt-packages.txt

if ((${#missing[@]})); then
  echo "installing from Debian: ${missing[*]}"
  as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || { echo "install.sh: run as root once: apt-get install ${missing[*]}" >&2; exit 2; }
    as_root=(sudo)
  fi
  # A machine that was just started may still hold apt's lock; waiting beats failing.
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq -y \
    install --no-install-recommends "${missing[@]}" >/dev/null
fi

[[ $want == serve ]] && exit 0

stamp=.venv/installed-$(sha256sum tools/setup/requirements.txt | cut -c1-16)
if [[ ! -e $stamp ]]; then
  echo "making the Python environment of the tests in .venv"
  rm -rf .venv
  /usr/bin/python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check --require-hashes -r tools/setup/requirements.txt
  touch "$stamp"
fi
