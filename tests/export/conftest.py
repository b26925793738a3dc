"""Tests of one format skip where its package is missing."""

import pytest


@pytest.fixture(autouse=True)
def litert(request):
    callspec = getattr(request.node, "callspec", None)
    if callspec and "litert" in callspec.params.values():
        pytest.importorskip("ai_edge_litert", reason="needs LiteRT, of the extra `ci`")
