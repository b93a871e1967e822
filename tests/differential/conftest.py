"""Both servers over the same models, for every protocol's comparison."""

import contextlib
import pathlib
import sys
import warnings

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))

from models import MODELS, make_models  # noqa: E402
from peer import Peer, missing  # noqa: E402
from served import Served, test_program  # noqa: E402


@pytest.fixture(scope="module")
def start_both(tmp_path_factory):
    """start_both(decoupled) gives (the real tritonserver, Tidemark) in a `with`; skips, loudly, where there is no peer.

    With `decoupled` each has a decoupled model, too, which here only the server with test backends can serve.
    """
    reason = missing()
    if reason:
        warnings.warn(f"NOT COMPARED with the real tritonserver: {reason}")
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("differential")

    @contextlib.contextmanager
    def start(decoupled=False):
        names = [name for name in MODELS if name != "unloaded"] + (["decoupled"] if decoupled else [])
        loads = [f"--load-model={name}" for name in names]
        make_models(root / "peer" / "models", ours=False, decoupled=decoupled)
        make_models(root / "ours", ours=True, decoupled=decoupled)
        with Peer(root / "peer" / "models", root / "peer.log", *loads) as peer, \
                Served(root / "ours", "--allow-client-shm=true", *loads,
                       program=test_program() if decoupled else None) as ours:
            yield peer, ours

    return start
