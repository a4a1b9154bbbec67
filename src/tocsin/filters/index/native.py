"""Events → codes and keys by CPython's own functions: the quick twin of `encoder`.

Reading an event of fourteen fields in Python takes longer than matching it against ten thousand filters. This kernel
walks the event's dictionaries itself: Numba calls the C functions every extension module calls (`PyDict_Next`,
`PyDict_GetItem` …) while it holds the interpreter's lock, as any extension module would. What it does not know
(timestamps, subclasses, whole numbers beyond 2^53) it leaves to `Encoder`: it answers `DEFER`, and the event is read
again from the beginning. A test compares the two on random events.

All addresses are borrowed: the event keeps its values alive, and the `Plan` keeps what it points to.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from numba import cfunc, njit, types

from tocsin.filters.index.labels import LOWEST
from tocsin.filters.index.plan import CELL, DEFER, FETCH, FETCH_WORDS, LABEL, LABEL_WORDS, PLAN, ROOT, SLOT
from tocsin.filters.index.pointers import f64, i32, i64
from tocsin.filters.values import EXACT

__all__ = ["name_entries", "name_events", "read_event"]

_LONGEST_ARRAY = 256  # members of one array are compared with each other: longer ones go to `Encoder`


def _function(name, result, *arguments):
    return types.ExternalFunction(name, result(*arguments))


# Numba finds these in the running interpreter, by name, so the compiled code can be cached.
_object = types.intp
_next_item = _function("PyDict_Next", types.int32, _object, _object, _object, _object)
_get = _function("PyDict_GetItem", _object, _object, _object)
_attribute = _function("PyObject_GetAttr", _object, _object, _object)
_release = _function("Py_DecRef", types.void, _object)
_double = _function("PyFloat_AsDouble", types.float64, _object)
_whole = _function("PyLong_AsLongLong", types.int64, _object)
_whole_or_overflow = _function("PyLong_AsLongLongAndOverflow", types.int64, _object, _object)
_number = _function("PyLong_FromLongLong", _object, types.int64)
_new_list = _function("PyList_New", _object, types.intp)
_set_item = _function("PyList_SetItem", types.int32, _object, types.intp, _object)
_cut = _function("PyList_SetSlice", types.int32, _object, types.intp, types.intp, _object)
_keep = _function("Py_IncRef", types.void, _object)
_list_size = _function("PyList_Size", types.intp, _object)
_list_item = _function("PyList_GetItem", _object, _object, types.intp)
_compare = _function("PyUnicode_Compare", types.int32, _object, _object)
_length = _function("PyUnicode_GetLength", types.intp, _object)
_character = _function("PyUnicode_ReadChar", types.uint32, _object, types.intp)


@njit(inline="always")
def _type(value):
    """The address of an object's type: the second word of every object (`builtin.supported` has looked)."""
    return i64(value)[1]


@njit(inline="always")
def _is_plain(p, kind):
    """Is this the type of a value that holds no names?"""
    return (
        kind == p[PLAN.none_type]
        or kind == p[PLAN.str_type]
        or kind == p[PLAN.float_type]
        or kind == p[PLAN.int_type]
        or kind == p[PLAN.bool_type]
        or kind == p[PLAN.list_type]
        or kind == p[PLAN.bytes_type]
    )


@njit(inline="always")
def _exact(p, value):
    """A whole number; EXACT for one that a machine word cannot hold."""
    overflow = p[PLAN.cells] + 8 * CELL.overflow
    number = _whole_or_overflow(value, overflow)
    return EXACT if i32(overflow)[0] != 0 else number


@njit
def _compare_backwards(text, bound):
    """Compare a text read from its end with a bound."""
    length, bound_length = _length(text), _length(bound)
    for i in range(min(length, bound_length)):
        mine, its = types.int64(_character(text, length - 1 - i)), types.int64(_character(bound, i))
        if mine != its:
            return -1 if mine < its else 1
    return -1 if length < bound_length else (1 if length > bound_length else 0)


@njit(inline="always")
def _order(text, bound, backwards):
    return _compare_backwards(text, bound) if backwards else _compare(text, bound)


@njit
def _put_label(keys_at, row, label, text):
    """Write the key of a text among labels, as `Labels.key` finds it; DEFER while a label is being added."""
    texts, labels, backwards = label[LABEL.texts], label[LABEL.labels], label[LABEL.backwards]
    low, high = types.int64(0), _list_size(texts)
    if high != _list_size(labels):
        return DEFER
    while low < high:
        middle = (low + high) >> 1
        if _order(text, _list_item(texts, middle), backwards) < 0:
            high = middle
        else:
            low = middle + 1
    key = types.int64(LOWEST + 1)
    if low > 0:
        at_bound = _order(text, _list_item(texts, low - 1), backwards) == 0
        key = _whole(_list_item(labels, low - 1)) + (1 if at_bound else 2)
    i64(keys_at)[row + label[LABEL.dimension]] = key
    return 0


@njit(inline="always")
def _put_code(p, found, other, codes):
    """Append the code found in a dictionary, or else the code for other values, if that is wanted."""
    code = _whole(found) if found != 0 else other
    if code >= 0:
        i32(p[PLAN.codes])[codes] = code
        codes += 1
    return codes


@njit
def _put_members(p, members, array, codes):
    """Append the codes of an array's elements, each once."""
    size = _list_size(array)
    if size > _LONGEST_ARRAY:
        return DEFER
    out, first = i32(p[PLAN.codes]), codes
    for i in range(size):
        element = _list_item(array, i)
        kind = _type(element)
        if kind == p[PLAN.int_type]:
            if not -EXACT < _exact(p, element) < EXACT:
                return DEFER
        elif kind != p[PLAN.str_type] and kind != p[PLAN.float_type]:
            if kind != p[PLAN.none_type] and kind != p[PLAN.bool_type]:
                return DEFER
            continue
        found = _get(members, element)
        if found != 0:
            code = _whole(found)
            repeated = False
            for j in range(first, codes):
                repeated |= out[j] == code
            if not repeated:
                out[codes] = code
                codes += 1
    return codes


@njit
def _put(p, slot, value, codes, row):
    """Write a value as its slot says; returns the new number of codes, or DEFER."""
    kind = _type(value)
    if kind == p[PLAN.str_type]:
        if slot[SLOT.time] >= 0:
            return DEFER
        if slot[SLOT.texts] != 0:
            codes = _put_code(p, _get(slot[SLOT.texts], value), slot[SLOT.text_other], codes)
        for i in range(slot[SLOT.label_count]):
            if _put_label(p[PLAN.keys], row, i64(slot[SLOT.labels] + 8 * LABEL_WORDS * i), value) == DEFER:
                return DEFER
    elif kind == p[PLAN.float_type]:
        if slot[SLOT.number] >= 0:
            f64(p[PLAN.keys])[row + slot[SLOT.number]] = _double(value)
        if slot[SLOT.numbers] != 0:
            codes = _put_code(p, _get(slot[SLOT.numbers], value), slot[SLOT.number_other], codes)
    elif kind == p[PLAN.int_type]:
        number = _exact(p, value)
        if not -EXACT < number < EXACT:
            return DEFER
        if slot[SLOT.number] >= 0:
            f64(p[PLAN.keys])[row + slot[SLOT.number]] = types.float64(number)
        if slot[SLOT.numbers] != 0:
            codes = _put_code(p, _get(slot[SLOT.numbers], value), slot[SLOT.number_other], codes)
    elif kind == p[PLAN.bool_type]:
        if slot[SLOT.booleans] != 0:
            codes = _put_code(p, _get(slot[SLOT.booleans], value), slot[SLOT.boolean_other], codes)
    elif kind == p[PLAN.list_type]:
        if slot[SLOT.members] != 0:
            codes = _put_members(p, slot[SLOT.members], value, codes)
    elif kind != p[PLAN.none_type] and kind != p[PLAN.dict_type]:
        return DEFER
    return codes


@njit
def _read_items(p, mapping, hidden_by, codes, row):
    """Write every item of a dictionary that has a slot and is not hidden by one of the same name."""
    cells, slots = i64(p[PLAN.cells]), p[PLAN.names]
    cells[CELL.position] = 0
    at = p[PLAN.cells]
    while _next_item(mapping, at + 8 * CELL.position, at + 8 * CELL.key, at + 8 * CELL.value) != 0:
        name = cells[CELL.key]
        if _type(name) != p[PLAN.str_type]:
            return DEFER
        place = _get(slots, name)
        if place == 0 or (hidden_by != 0 and _get(hidden_by, name) != 0):
            continue
        codes = _put(p, i64(_whole(place)), cells[CELL.value], codes, row)
        if codes == DEFER:
            return DEFER
    return codes


@njit
def _fetch(p, fetch, event, data, attributes):
    """Find what a record of the plan says; the address of None where it is missing, 0 to defer."""
    steps, count, root = i64(fetch[FETCH.steps]), fetch[FETCH.step_count], fetch[FETCH.root]
    none = p[PLAN.none]
    if root == ROOT.envelope:
        value = _attribute(event, steps[0])
        if value != 0:
            _release(value)  # the event holds it as long as it lives
        return value
    at = 0
    value = data
    if root != ROOT.data:
        value = _get(attributes, steps[0])
        at = 1
        if value == 0:
            if root == ROOT.attributes or _type(data) != p[PLAN.dict_type]:
                return none
            value = _get(data, steps[0])
    while at < count and value != 0:
        kind = _type(value)
        if kind != p[PLAN.dict_type]:
            return none if _is_plain(p, kind) else 0
        value = _get(value, steps[at])
        at += 1
    return value if value != 0 else none


@njit
def _read(p, event, codes, row):
    if _type(event) != p[PLAN.event_type]:
        return DEFER
    data, attributes = _attribute(event, p[PLAN.data_name]), _attribute(event, p[PLAN.attributes_name])
    _release(data)
    _release(attributes)
    kind = _type(data)
    if _type(attributes) != p[PLAN.dict_type] or (kind != p[PLAN.dict_type] and not _is_plain(p, kind)):
        return DEFER
    codes = _read_items(p, attributes, 0, codes, row)
    if kind == p[PLAN.dict_type] and codes != DEFER:
        codes = _read_items(p, data, attributes, codes, row)
    for i in range(p[PLAN.fetch_count]):
        if codes == DEFER:
            return DEFER
        fetch = i64(p[PLAN.fetches] + 8 * FETCH_WORDS * i)
        value = _fetch(p, fetch, event, data, attributes)
        if value == 0:
            return DEFER
        if fetch[FETCH.slot] != 0:
            codes = _put(p, i64(fetch[FETCH.slot]), value, codes, row)
        else:
            code = fetch[FETCH.null] if value == p[PLAN.none] else fetch[FETCH.present]
            if code >= 0:
                i32(p[PLAN.codes])[codes] = code
                codes += 1
    return codes


_BUILTIN = _object(_object, _object, types.intp)


@cfunc(_BUILTIN, cache=True)
def read_event(plan, arguments, count):
    """Write an event by a plan: codes behind those already there, keys into the row that begins there.

    Arguments: event, number of codes already there, beginning of the row. Returns the new number of codes, or DEFER:
    then nothing that was written counts.
    """
    given = i64(arguments)
    return _number(_read(i64(_whole(plan)), given[0], _whole(given[1]), _whole(given[2])))


@njit
def _named(keys, none, entries, first, last):
    """Make a list of the keys of these entries, without those that were removed (None) meanwhile."""
    found = _new_list(last - first)
    size = 0
    for i in range(first, last):
        key = _list_item(keys, entries[i])
        if key != none:
            _keep(key)
            _set_item(found, size, key)
            size += 1
    if size < last - first:
        for i in range(size, last - first):  # a list must be full before it can be cut
            _keep(none)
            _set_item(found, i, none)
        _cut(found, size, last - first, 0)
    return found


@cfunc(_BUILTIN, cache=True)
def name_entries(names, arguments, count):
    """Make a list of the keys of the first so many entries; the state is `naming.namer`'s."""
    state = i64(_whole(names))
    return _named(state[0], state[1], i32(state[2]), 0, _whole(i64(arguments)[0]))


@cfunc(_BUILTIN, cache=True)
def name_events(names, arguments, count):
    """Make a list with a list of keys for each of the first so many events."""
    state = i64(_whole(names))
    entries, starts, events = i32(state[2]), i64(state[3]), _whole(i64(arguments)[0])
    found = _new_list(events)
    for event in range(events):
        _set_item(found, event, _named(state[0], state[1], entries, starts[event], starts[event + 1]))
    return found
