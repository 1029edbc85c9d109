"""All objectives, losses and parameters of the installed libraries: if one is new, a test fails.

The names come from the libraries themselves: from tables, or from messages of errors. Each model is compared
with its library's own raw score.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.tree
from helpers.checks import assert_margin, hard_rows

from skshapgpu import TreeExplainer
from skshapgpu.adapters import adapt
from skshapgpu.adapters import sklearn as sklearn_adapter
from skshapgpu.adapters.catboost import model as catboost_adapter

RNG = np.random.default_rng(0)
N_ROWS = 200
X = RNG.normal(size=(N_ROWS, 4)).round(2).astype(np.float32)
#: Positive targets with a mean of about 5; two and three classes; groups of rows.
Y = np.abs(X[:, 0] * X[:, 1] + X[:, 2]).astype(float) + 4.0
HIGH = (Y > 4.8).astype(int)
CLASSES = np.digitize(Y, [4.4, 5.2])
GROUPS = np.full(20, 10)

# XGBoost


def trained(params: dict[str, Any], n_rounds: int = 4, **options: Any) -> Any:
    """Train a booster on labels that suit the objective, whose name begins with its kind."""
    xgboost = pytest.importorskip("xgboost")
    objective = str(params.get("objective"))
    kind = objective.partition(":")[0]
    label = {"binary": HIGH, "multi": CLASSES, "rank": HIGH}.get(kind, Y)
    matrix = xgboost.DMatrix(X, HIGH if objective == "reg:logistic" else label)
    if kind == "rank":
        matrix.set_group(GROUPS)
    if kind == "multi":
        params = {"num_class": 3} | params
    if objective == "survival:aft":
        matrix.set_float_info("label_lower_bound", Y)
        matrix.set_float_info("label_upper_bound", Y + 1)
    if objective == "reg:quantileerror":
        params = {"quantile_alpha": [0.2, 0.7]} | params
    if objective == "reg:expectileerror":
        params = {"expectile_alpha": [0.2, 0.7]} | params
    return xgboost.train({"max_depth": 3, "nthread": 1, **params}, matrix, n_rounds, **options)


def check_booster(booster: Any) -> Any:
    """Compare the margins of a booster and of its file with XGBoost's own; return the ensemble."""
    import xgboost

    ensemble = adapt(booster).ensemble
    rows = hard_rows(ensemble, inf=False)
    expected = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    assert_margin(ensemble, rows, expected, 1e-5)
    for form in ("ubj", "json"):
        assert_margin(adapt(bytes(booster.save_raw(form))).ensemble, rows, expected, 1e-5)
    return ensemble


def xgboost_objectives() -> list[str]:
    xgboost = pytest.importorskip("xgboost")
    with pytest.raises(xgboost.core.XGBoostError) as error:
        trained({"objective": "unknown"})
    return re.findall(r"Objective candidate: (\S+)", str(error.value))


@pytest.mark.parametrize("n_rounds", [0, 4])
@pytest.mark.parametrize("base_score", [None, 0.3])
def test_objectives_of_xgboost(base_score: float | None, n_rounds: int) -> None:
    """Without rounds, XGBoost 3.1 and later take a base score that the user did not set for a margin."""
    objectives = xgboost_objectives()
    assert len(objectives) > 15
    for objective in objectives:
        booster = trained(
            {"objective": objective} | ({} if base_score is None else {"base_score": base_score}), n_rounds
        )
        ensemble = check_booster(booster)
        assert ensemble.n_trees == n_rounds * ensemble.n_outputs


@pytest.mark.parametrize("alphas", [[0.7], [0.2, 0.8], [0.1, 0.5, 0.6, 0.9]])
@pytest.mark.parametrize("base_score", [None, 0.3, "steps"])
def test_expectiles(alphas: list[float], base_score: Any) -> None:
    """Base scores rise by a lot, rise by less than the smallest step, or fall."""
    if "reg:expectileerror" not in xgboost_objectives():
        pytest.skip("this XGBoost has no expectiles")
    params = {"objective": "reg:expectileerror", "expectile_alpha": alphas}
    if base_score is not None:
        steps = [1.5, 3.0, 3.0 + 1e-6, 2.0][: len(alphas)]
        params["base_score"] = steps if base_score == "steps" else base_score
    booster = trained(params)
    ensemble = check_booster(booster)
    assert ensemble.n_outputs == len(alphas)
    if len(alphas) > 1:
        document = json.loads(booster.save_raw("json"))
        scores = json.loads(document["learner"]["learner_model_param"]["base_score"])
        assert np.abs(ensemble.intercept[1:] - scores[1:]).max() > 0.1  # unlike expectiles


def test_parameters_of_xgboost() -> None:
    """Parameters whose values are names have these values, and boosters have these parameters."""
    xgboost = pytest.importorskip("xgboost")
    version = tuple(map(int, xgboost.__version__.split(".")[:2]))
    values = {}
    for name in ("tree_method", "grow_policy", "sampling_method", "multi_strategy"):
        with pytest.raises(xgboost.core.XGBoostError) as error:
            trained({name: "unknown"})
        values[name] = re.findall(r"'(\w+)'", str(error.value).partition("valid values are")[2].split("}")[0])
        assert len(values[name]) > 1
    for name, names in values.items():
        for value in names:
            if value not in ("gpu_hist", "gradient_based") and (
                version >= (3, 4) or value != "multi_output_tree"
            ):
                check_booster(trained({name: value}))
    for name in ("normalize_type", "sample_type"):
        for value in ("tree", "forest") if name == "normalize_type" else ("uniform", "weighted"):
            check_booster(trained({"booster": "dart", "rate_drop": 0.5, "one_drop": 1, name: value}))
    booster = json.loads(trained({}).save_config())["learner"]["gradient_booster"]
    names = {name for part in booster.values() if isinstance(part, dict) for name in part}
    assert names <= XGBOOST_PARAMETERS


#: Parameters of boosters. None of them changes what a tree or the sum of trees means, except as the fields of
#: the document say. A new parameter may.
XGBOOST_PARAMETERS = set(
    "alpha cache_opt colsample_bylevel colsample_bynode colsample_bytree eta gamma grow_policy "
    "interaction_constraints lambda learning_rate max_bin max_cat_threshold max_cat_to_onehot max_delta_step "
    "max_depth max_leaves min_child_weight min_split_loss monotone_constraints normalize_type "
    "num_parallel_tree num_trees one_drop predictor process_type rate_drop refresh_leaf reg_alpha reg_lambda "
    "sample_type sampling_method size_leaf_vector skip_drop sketch_ratio sparse_threshold subsample "
    "tree_method updater updater_seq num_feature".split()
)


# LightGBM

LIGHTGBM_OBJECTIVES = {
    **dict.fromkeys("regression regression_l1 huber fair poisson quantile mape gamma tweedie".split(), Y),
    **dict.fromkeys("binary cross_entropy cross_entropy_lambda".split(), HIGH),
    **dict.fromkeys("multiclass multiclassova".split(), CLASSES),
    **dict.fromkeys("lambdarank rank_xendcg".split(), CLASSES),
}

#: Parameters of training. As for XGBoost, a new parameter may change what a tree means.
LIGHTGBM_PARAMETERS = set(
    "alpha auc_mu_weights bagging_by_query bagging_fraction bagging_freq bagging_seed "
    "bin_construct_sample_cnt boost_from_average boosting cat_l2 cat_smooth categorical_feature "
    "cegb_penalty_feature_coupled cegb_penalty_feature_lazy cegb_penalty_split cegb_tradeoff config "
    "convert_model convert_model_language data data_random_seed data_sample_strategy deterministic "
    "device_type drop_rate drop_seed early_stopping_min_delta early_stopping_round enable_bundle eval_at "
    "extra_seed extra_trees fair_c feature_contri feature_fraction feature_fraction_bynode "
    "feature_fraction_seed feature_pre_filter first_metric_only force_col_wise force_row_wise "
    "forcedbins_filename forcedsplits_filename gpu_device_id gpu_device_id_list gpu_platform_id "
    "gpu_use_dp group_column header histogram_pool_size ignore_column input_model interaction_constraints "
    "is_enable_sparse is_provide_training_metric is_unbalance label_column label_gain lambda_l1 lambda_l2 "
    "lambdarank_norm lambdarank_position_bias_regularization lambdarank_truncation_level learning_rate "
    "linear_lambda linear_tree local_listen_port machine_list_filename machines max_bin "
    "max_bin_by_feature max_cat_threshold max_cat_to_onehot max_delta_step max_depth max_drop metric "
    "metric_freq min_data_in_bin min_data_in_leaf min_data_per_group min_gain_to_split "
    "min_sum_hessian_in_leaf monotone_constraints monotone_constraints_method monotone_penalty "
    "multi_error_top_k neg_bagging_fraction num_class num_gpu num_grad_quant_bins num_iteration_predict "
    "num_iterations num_leaves num_machines num_threads objective objective_seed other_rate output_model "
    "output_result parser_config_file path_smooth poisson_max_delta_step pos_bagging_fraction "
    "pre_partition precise_float_parser pred_early_stop pred_early_stop_freq pred_early_stop_margin "
    "predict_contrib predict_disable_shape_check predict_leaf_index predict_raw_score "
    "quant_train_renew_leaf refit_decay_rate reg_sqrt save_binary saved_feature_importance_type "
    "scale_pos_weight seed sigmoid skip_drop snapshot_freq start_iteration_predict stochastic_rounding "
    "task time_out top_k top_rate tree_learner tweedie_variance_power two_round uniform_drop use_missing "
    "use_quantized_grad valid verbosity weight_column xgboost_dart_mode zero_as_missing".split()
)


def sigmoid(margin: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-margin))


def softmax(margin: np.ndarray) -> np.ndarray:
    return np.exp(margin) / np.exp(margin).sum(axis=1, keepdims=True)


LINKS = {"logistic": sigmoid, "softmax": softmax, "exp": np.exp}


@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf", "goss"])
def test_objectives_of_lightgbm(boosting: str) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    sampled = {"bagging_freq": 1, "bagging_fraction": 0.7} if boosting != "goss" else {}
    for objective, label in LIGHTGBM_OBJECTIVES.items():
        is_ranker = objective in ("lambdarank", "rank_xendcg")
        if boosting == "rf" and (is_ranker or objective in ("mape", "huber", "fair")):
            continue
        params = {"verbose": -1, "num_threads": 1, "num_leaves": 5, "min_data_in_leaf": 5} | sampled
        params |= {"objective": objective, "boosting": boosting}
        if objective.startswith("multiclass"):
            params["num_class"] = 3
        rows = lightgbm.Dataset(X.astype(float), label, group=GROUPS if is_ranker else None)
        model = lightgbm.train(params, rows, 4)
        adapted = adapt(model)
        raw = model.predict(X, raw_score=True) / (4 if boosting == "rf" else 1)
        assert_margin(adapted.ensemble, X, raw, 1e-9)
        assert_margin(adapt(model.model_to_string().encode()).ensemble, X, raw, 1e-9)
        if adapted.link is not None:
            predicted = LINKS[adapted.link](raw.reshape(N_ROWS, -1) * adapted.link_scale)
            np.testing.assert_allclose(predicted, model.predict(X).reshape(N_ROWS, -1), rtol=1e-9)
        assert adapted.squared_error == (objective == "regression")


def test_parameters_of_lightgbm() -> None:
    basic = pytest.importorskip("lightgbm.basic")
    names = set(basic._ConfigAliases._get_all_param_aliases())
    assert len(names) > 100 and names <= LIGHTGBM_PARAMETERS


# CatBoost

#: Losses that cannot be trained with their name alone.
CATBOOST_LOSSES = {
    "Quantile": "Quantile:alpha=0.3",
    "MultiQuantile": "MultiQuantile:alpha=0.2,0.8",
    "Expectile": "Expectile:alpha=0.3",
    "Lq": "Lq:q=3",
    "Huber": "Huber:delta=1",
    "Tweedie": "Tweedie:variance_power=1.5",
    "Focal": "Focal:focal_alpha=0.5;focal_gamma=2",
    "StochasticRank": "StochasticRank:metric=DCG",
    "LambdaMart": "LambdaMart:metric=NDCG",
}

#: Losses that these tests do not train: losses for GPUs only, a sum of pairwise losses, and losses of users.
NOT_TRAINED = {
    "QueryCrossEntropy",
    "Combination",
    "PythonUserDefinedPerObject",
    "PythonUserDefinedMultiTarget",
}


def catboost_model(**params: Any) -> Any:
    catboost = pytest.importorskip("catboost")
    params = {"iterations": 3, "depth": 2, "thread_count": 1, "random_seed": 0} | params
    return catboost.CatBoost(params | {"verbose": False, "allow_writing_files": False})


def catboost_names(parameter: str) -> list[str]:
    """Return the valid values of a parameter, from the error for an invalid value."""
    catboost = pytest.importorskip("catboost")
    with pytest.raises(catboost.CatBoostError) as error:
        catboost_model(**{parameter: "Unknown"}).fit(X, Y)
    names = re.findall(r"'(\w+)'", str(error.value).partition("Valid options are")[2])
    assert len(names) > 1
    return names


def test_losses_of_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    targets = (Y, HIGH, CLASSES, np.stack([Y, Y + 1], axis=1))
    groups = np.repeat(np.arange(len(GROUPS)), GROUPS)
    trained = set()
    names = catboost_names("loss_function")
    for loss in names:
        for target, group in [(target, group) for target in targets for group in (None, groups)]:
            if loss in ("MultiClass", "MultiClassOneVsAll") and target is Y:
                continue  # each number would be a class
            model = catboost_model(loss_function=CATBOOST_LOSSES.get(loss, loss))
            try:
                model.fit(catboost.Pool(X, target, group_id=group))
            except (catboost.CatBoostError, AttributeError):
                continue
            trained.add(loss)
            adapted = adapt(model)
            raw = model.predict(X, prediction_type="RawFormulaVal")
            assert_margin(adapted.ensemble, X, raw, 1e-9)
            if adapted.link in ("logistic", "softmax"):
                predicted = LINKS[adapted.link](raw.reshape(N_ROWS, -1))
                probability = model.predict(X, prediction_type="Probability")
                np.testing.assert_allclose(predicted, probability[:, -predicted.shape[1] :], rtol=1e-9)
            break
    assert len(trained) > 30
    newer = {"GroupQuantile", "RMSPE"}.difference(names)  # CatBoost 1.2.0 lacks them
    assert trained | NOT_TRAINED | newer >= catboost_adapter._LOSSES >= trained


@pytest.mark.parametrize(
    "parameter",
    ["grow_policy", "nan_mode", "bootstrap_type", "boosting_type", "leaf_estimation_method", "score_function",
     "feature_border_type", "sampling_frequency", "model_shrink_mode"],
)  # fmt: skip
def test_parameters_of_catboost(parameter: str) -> None:
    catboost = pytest.importorskip("catboost")
    rows = X.copy()
    if parameter == "nan_mode":
        rows[::7, 0] = np.nan
    n_trained = 0
    for value in catboost_names(parameter):
        model = catboost_model(**{parameter: value, "loss_function": "RMSE", "iterations": 5})
        try:
            model.fit(rows, Y)
        except catboost.CatBoostError:
            continue  # on GPUs only, or not with this loss
        n_trained += 1
        assert_margin(adapt(model).ensemble, rows, model.predict(rows), 1e-9)
    assert n_trained > 0


# scikit-learn

TREES = set(
    "bootstrap bootstrap_features ccp_alpha class_weight contamination criterion estimator max_depth "
    "max_features max_leaf_nodes max_samples min_impurity_decrease min_samples_leaf min_samples_split "
    "min_weight_fraction_leaf monotonic_cst n_estimators n_jobs oob_score random_state splitter verbose "
    "warm_start".split()
)
BOOSTING = TREES - {"bootstrap", "monotonic_cst"} | set(
    "alpha init learning_rate loss n_iter_no_change subsample tol validation_fraction".split()
)
HIST = set(
    "categorical_features class_weight early_stopping interaction_cst l2_regularization learning_rate loss "
    "max_bins max_depth max_features max_iter max_leaf_nodes min_samples_leaf monotonic_cst n_iter_no_change "
    "quantile random_state scoring tol validation_fraction verbose warm_start".split()
)


def class_named(name: str) -> Any:
    return getattr(sklearn.tree if name.startswith("Decision") else sklearn.ensemble, name)


@pytest.mark.parametrize("name", sklearn_adapter._READERS)
def test_models_of_scikit_learn(name: str) -> None:
    """All criteria and losses are read, and there is no parameter that nobody has looked at."""
    cls = class_named(name)
    known = HIST if name.startswith("Hist") else BOOSTING if name.startswith("Gradient") else TREES
    assert set(cls._parameter_constraints) <= known
    if name == "HistGradientBoostingRegressor":
        small = {"max_iter": 3, "quantile": 0.3}
    else:
        small = {"max_iter": 3} if name.startswith("Hist") else {"n_estimators": 3}
    small = {name: value for name, value in small.items() if name in cls._parameter_constraints}
    parameter = next((each for each in ("loss", "criterion") if each in cls._parameter_constraints), None)
    options = [
        option
        for constraint in cls._parameter_constraints.get(parameter, [])
        for option in sorted(getattr(constraint, "options", ()))
    ]
    for option in options or [None]:
        model = cls(**small, **({parameter: option} if option else {}), random_state=0)
        for labels in (HIGH, CLASSES) if name.endswith("Classifier") and option != "exponential" else (HIGH,):
            model.fit(X, labels if name.endswith("Classifier") else Y)
            adapted = adapt(model)
            assert_margin(adapted.ensemble, X, raw_score(model), 1e-9)
            if name.endswith("Regressor"):
                assert adapted.squared_error == (option in ("squared_error", "friedman_mse"))
                assert (adapted.link == "exp") == (option in ("poisson", "gamma") and parameter == "loss")


def raw_score(model: Any) -> np.ndarray:
    """Return the library's own score."""
    name = type(model).__name__
    if name == "IsolationForest":  # the score is -2 ** (-length / c)
        c = sklearn.ensemble._iforest._average_path_length([model._max_samples])[0]
        return -c * np.log2(-model.score_samples(X))
    if "GradientBoosting" in name:
        return np.squeeze(model._raw_predict(X))
    if name.endswith("Classifier"):
        proba = model.predict_proba(X)
        return proba[:, 1] if proba.shape[1] == 2 else proba
    return model.predict(X)


def test_losses_of_hist_gradient_boosting() -> None:
    """Losses of scikit-learn passed as objects; a loss without a known link to the margin is rejected."""
    losses = pytest.importorskip("sklearn._loss.loss")
    classes = [
        cls
        for cls in vars(losses).values()
        if isinstance(cls, type) and issubclass(cls, losses.BaseLoss) and cls is not losses.BaseLoss
    ]
    classes = [cls for cls in classes if not cls.__name__.endswith("ArrayAPI")]  # of linear models
    assert len(classes) > 8
    assert {cls.__name__ for cls in classes} <= set(sklearn_adapter._LOSSES)
    for cls in (losses.HalfTweedieLoss, losses.HalfTweedieLossIdentity):
        model = sklearn.ensemble.HistGradientBoostingRegressor(max_iter=4, loss=cls(power=1.5)).fit(X, Y)
        adapted = adapt(model)
        assert_margin(adapted.ensemble, X, model._raw_predict(X.astype(float))[:, 0], 1e-9)
        margin = adapted.ensemble.margin(X)[:, 0]
        np.testing.assert_allclose(np.exp(margin) if adapted.link == "exp" else margin, model.predict(X))


def test_loss_that_is_changed_after_fit() -> None:
    model = sklearn.ensemble.HistGradientBoostingRegressor(max_iter=4, loss="poisson").fit(X, Y)
    model.set_params(loss="squared_error")
    adapted = adapt(model)
    assert adapted.link == "exp" and not adapted.squared_error
    with pytest.raises(ValueError, match="log_loss"):
        TreeExplainer(model, X[:5], model_output="log_loss")


# Objectives of the user's own


def test_objectives_of_the_users_own() -> None:
    """Only the margin is explained: no loss is known, and a link only if the library applies it."""

    def squared(labels: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return predicted - labels, np.ones(len(labels))

    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    for model, raw in (
        (xgboost.XGBRegressor(n_estimators=3, objective=squared), {"output_margin": True}),
        (lightgbm.LGBMRegressor(n_estimators=3, objective=squared, verbose=-1), {"raw_score": True}),
    ):
        model.fit(X, Y)
        adapted = adapt(model)
        assert_margin(adapted.ensemble, X, model.predict(X, **raw), 1e-5)
        assert adapted.link is None and not adapted.squared_error
        with pytest.raises(ValueError, match="model_output='log_loss' needs"):
            TreeExplainer(model, X[:5], model_output="log_loss")
    model = xgboost.XGBClassifier(n_estimators=3, objective=squared).fit(X, HIGH)
    adapted = adapt(model)
    np.testing.assert_allclose(
        sigmoid(adapted.ensemble.margin(X)[:, 0]), model.predict_proba(X)[:, 1], rtol=1e-5
    )
    assert adapted.link == "logistic"
