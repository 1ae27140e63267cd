# SPDX-License-Identifier: Apache-2.0
"""Options of the tokenizer comparison."""


def pytest_addoption(parser):
    parser.addoption("--strings", type=int, default=100_000, help="random strings a vocabulary")
    parser.addoption("--seed", type=int, default=20261201)
