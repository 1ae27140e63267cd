# SPDX-License-Identifier: Apache-2.0
import pytest

from server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One split server for the tests of a file; at the end it must drain cleanly and hold no page."""
    running = Server(log_path=tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    assert running.terminate() == 0, running.log_path.read_text()[-4000:]
