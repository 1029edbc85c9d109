"""Attributes that only explanations of shap have: the error says what to call, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from helpers.displays import random_explanation

from skshapgpu import Explanation, explain
from skshapgpu._explanations.shap_form import ATTRIBUTES_OF_SHAP


@pytest.mark.parametrize("name", ATTRIBUTES_OF_SHAP)
def test_the_error_says_to_convert_first(name: str) -> None:
    explanation = random_explanation(4, 3)
    with pytest.raises(AttributeError, match=rf"explanation\.to_shap\(\)\.{name}(, or use |$)") as error:
        getattr(explanation, name)
    assert error.value.name == name and error.value.obj is explanation
    assert not hasattr(explanation, name) and name not in dir(explanation)
    assert getattr(explanation, name, 5) == 5


def test_errors_name_our_counterparts() -> None:
    explanation = random_explanation(4, 3)
    for name, counterpart in ATTRIBUTES_OF_SHAP.items():
        ours = counterpart.removesuffix("()")
        assert not ours or hasattr(explanation, ours) or ours.endswith("of explain_interactions"), name


def test_the_list_is_that_of_shap() -> None:
    shap = pytest.importorskip("shap", minversion="0.54")
    explanation = random_explanation(4, 3)
    theirs = explanation.to_shap()
    names = {name for name in [*dir(theirs), *vars(theirs)] if not name.startswith("_")}
    assert isinstance(theirs, shap.Explanation)
    assert names - {name for name in dir(explanation) if not name.startswith("_")} == set(ATTRIBUTES_OF_SHAP)


def test_other_names_raise_the_usual_error() -> None:
    explanation = random_explanation(4, 3)
    with pytest.raises(AttributeError, match="object has no attribute 'valeus'") as error:
        _ = explanation.valeus
    assert error.value.name == "valeus" and error.value.obj is explanation  # for "Did you mean: 'values'?"
    with pytest.raises(AttributeError, match="object has no attribute '__array_interface__'"):
        _ = explanation.__array_interface__


def test_errors_in_properties_are_not_hidden() -> None:
    explanation = Explanation(values=None, base_values=0.0, data=None, feature_names=())
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'shape'"):
        _ = explanation.shape


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_and_pickles_are_whole(copied: Callable[[Explanation], Explanation]) -> None:
    explanation = random_explanation(4, 3)
    other = copied(explanation)
    assert vars(other).keys() == vars(explanation).keys()
    np.testing.assert_array_equal(other.values, explanation.values)
    # Before a pickle has given an object its attributes, none of them leads to an endless recursion.
    with pytest.raises(AttributeError, match="no attribute 'values'"):
        _ = Explanation.__new__(Explanation).values


def test_numpy_reads_the_values_and_not_the_attributes_of_shap() -> None:
    explanation = random_explanation(4, 3)
    values = explanation.values
    np.testing.assert_array_equal(np.mean(explanation, axis=0), values.mean(axis=0))
    np.testing.assert_array_equal(np.abs(explanation), np.abs(values))
    np.testing.assert_array_equal(np.sum(explanation), values.sum())


def test_calls_return_explanations_with_the_same_errors() -> None:
    from sklearn.tree import DecisionTreeRegressor

    X = np.arange(20.0).reshape(10, 2)
    explanation = explain(DecisionTreeRegressor(max_depth=2).fit(X, X[:, 0]), X)
    with pytest.raises(AttributeError, match=r"to_shap\(\)\.abs, or use importance\(\)"):
        explanation.abs.mean(0)
