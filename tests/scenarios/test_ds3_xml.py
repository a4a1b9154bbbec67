"""DS3's scenarios about XML documents and XPath subscriptions, with the thesis's own documents (Appendix A.2)."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tocsin
from tests.helpers import event, heard, testing
from tocsin import Event, Filter, Matcher

NEW_VALUE = '<NewValue value="9.012"/>'
RESOURCE = '/Rektron/SQC/Measurement[@article="Aluminium, 5 mm" and @property="Diameter"]'


def measurement(content: str, article: str = "Aluminium, 5 mm", property: str = "Diameter") -> str:
    """The document base of the thesis, with content added under it."""
    inside = f'<Measurement article="{article}" property="{property}">{content}</Measurement>'
    return f"<Rektron><SQC>{inside}</SQC></Rektron>"


def notify(id: str, document: str) -> Event:
    return event(id, data=document, datacontenttype="application/xml")


async def test_scenario_01_the_bare_document_arrives(bus: Any) -> None:
    sub = await bus.subscribe("/Rektron/SQC/Measurement/NewValue", consumer="s")
    await bus.publish(notify("a", measurement(NEW_VALUE)))
    await testing.settled(bus)
    delivery = sub.poll()
    assert delivery.event.data == measurement(NEW_VALUE)
    await delivery.ack()


async def test_scenario_02_what_does_not_match_does_not_come(bus: Any) -> None:
    sub = await bus.subscribe("/Rektron/SPC", consumer="s")
    await bus.publish(notify("a", measurement(NEW_VALUE)))
    assert await heard(bus, sub) == []


async def test_scenario_03_two_matching_queries_deliver_once(bus: Any) -> None:
    one = await bus.subscribe("//NewValue", consumer="s")
    two = await bus.subscribe("/Rektron/SQC", consumer="s")
    await bus.publish(notify("a", measurement(NEW_VALUE)))
    assert await heard(bus, one) + await heard(bus, two) == ["a"]


async def test_scenario_15_the_example_of_the_thesis(bus: Any) -> None:
    values = await bus.subscribe("/Rektron/SQC/Measurement/NewValue", consumer="values")
    resource = await bus.subscribe(RESOURCE, consumer="resource")
    shallow = await bus.subscribe("/Rektron/SQC", consumer="shallow")
    steel = await bus.subscribe('/Rektron/SQC/Measurement[@article="Steel"]', consumer="steel")
    await bus.publish(notify("start", measurement("<StartMeasure/>")))
    await bus.publish(notify("value", measurement(NEW_VALUE)))
    await bus.publish(notify("length", measurement(NEW_VALUE, property="Length")))
    assert await heard(bus, values) == ["value", "length"]
    assert await heard(bus, resource) == ["start", "value"]
    assert await heard(bus, shallow) == ["start", "value", "length"]
    assert await heard(bus, steel) == []


async def test_the_past_is_asked_alike(bus: Any) -> None:
    """Beyond DS3, which forgets: a late subscriber asks stored documents."""
    for n in range(300):
        await bus.publish(notify(f"{n}", measurement(f'<NewValue value="{n}"/>')))
    await bus.publish(notify("bad", "<Rektron>"))
    late = await bus.subscribe("//NewValue[@value >= 297]", consumer="late", past=tocsin.retained(), order="journal")
    assert await heard(bus, late) == ["297", "298", "299"]


async def test_scenario_34_malformed_xml_harms_nobody(bus: Any) -> None:
    sub = await bus.subscribe("//NewValue", consumer="s")
    await bus.publish(notify("bad", "<Rektron><SQC>"))
    await bus.publish(notify("worse", '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><NewValue>&e;</NewValue>'))
    await bus.publish(notify("good", measurement(NEW_VALUE)))
    assert await heard(bus, sub) == ["good"]
    with pytest.raises(tocsin.FilterError):
        await bus.subscribe("//NewValue[", consumer="s")


@pytest.mark.parametrize("root", ["Event", "Destination"])
def test_scenario_35_awkward_names_quotes_and_letters(root: str) -> None:
    document = f"<{root} note='say \"&amp;&lt;\" é'><Größe>1</Größe></{root}>"
    given = notify("a", document)
    assert given.data == document
    assert Filter(f"/{root}/Größe").matches(given)
    assert Filter("xpath_string(data, '/*/@note') = 'say \"&<\" é'").matches(given)


def test_scenario_36_unknown_elements_do_no_harm() -> None:
    later = measurement('<Operator name="x"/>' + NEW_VALUE + "<Unit>mm</Unit>")
    assert Filter("/Rektron/SQC/Measurement/NewValue").matches(notify("a", later))


def test_scenario_43_a_thousand_subscriptions_are_what_a_scan_finds() -> None:
    chance = random.Random(43)
    queries = {
        n: chance.choice(
            [
                f"//Measurement[@article = 'A{n % 40}']",
                f"//NewValue[@value > {n % 20}]",
                f"xpath_string(data, '//@article') = 'A{n % 40}' AND xpath_number(data, '//@value') < {n % 20}",
                f"/Rektron/SQC/Measurement[@property = 'P{n % 7}']/NewValue",
            ]
        )
        for n in range(1_200)
    }
    filters = {key: Filter(text) for key, text in queries.items()}
    matcher = Matcher()
    matcher.add_many(filters.items())
    for n in range(40):
        document = measurement(f'<NewValue value="{n / 2}"/>', f"A{n}", f"P{n % 9}")
        given = notify(str(n), document)
        assert sorted(matcher.match(given)) == [key for key, one in filters.items() if one.matches(given)]
