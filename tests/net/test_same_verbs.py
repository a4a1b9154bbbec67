"""A remote bus has the verbs of an embedded one, with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import tocsin
from tocsin.net.verbs import VERBS
from tocsin.remote import RemoteBus

VERB_NAMES = [
    name for name, value in vars(tocsin.Bus).items() if inspect.isfunction(value) and not name.startswith("_")
]


@pytest.mark.parametrize("name", VERB_NAMES)
def test_verb_takes_the_same_arguments(name: str) -> None:
    here, there = (inspect.signature(getattr(bus, name)) for bus in (tocsin.Bus, RemoteBus))
    assert list(here.parameters.values()) == list(there.parameters.values())


@pytest.mark.parametrize("name", VERBS)
def test_verb_of_the_wire_takes_what_the_bus_takes(name: str) -> None:
    wanted = [each for each in inspect.signature(getattr(tocsin.Bus, name)).parameters if each != "self"]
    assert set(VERBS[name].arguments.__struct_fields__) == set(wanted)
