from __future__ import annotations

import json

import pytest

from engine.request import BadRequest, InfillRequest
from engine.wire import parse_completion


def parse(**extensions: object) -> InfillRequest:
    return parse_completion(json.dumps({"prompt": "x", "dlsp": extensions}).encode()).infill


def test_what_native_models_take_reaches_them() -> None:
    asked = {
        "policy": "entropy",
        "strength": 0.2,
        "left_bias": 0.5,
        "remask": "score",
        "length": "grow",
        "slots": 12,
        "exact": True,
    }
    request = parse(**asked)
    assert {name: getattr(request, name) for name in asked} == asked
    plain = InfillRequest(prefix="x")
    assert all(getattr(parse(), name) == getattr(plain, name) for name in asked)


@pytest.mark.parametrize(
    ("extensions", "says"),
    [
        ({"policy": "best"}, "policy must be one of one_per_step, confidence"),
        ({"length": "auto"}, "length must be one of fixed, grow, edit, probe"),
        ({"remask": "all"}, "remask must be one of none"),
        ({"policy": "speculative", "remask": "score"}, "use remask none"),
        ({"strength": -0.1}, "must not be negative"),
        ({"left_bias": -1}, "must not be negative"),
        ({"slots": 0}, "slots must lie between 1 and"),
        ({"slots": 10**6}, "slots must lie between 1 and"),
        ({"slots": 1.5}, "slots must be a whole number"),
        ({"exact": 1}, "exact must be true or false"),
    ],
)
def test_what_no_model_takes_is_refused(extensions: dict[str, object], says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        parse(**extensions)
    assert "\n" not in str(caught.value)
