"""Draw the charts of the pages with results, from benchmarks/results.

Run ``python docs/charts.py``: it writes docs/images/benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from svg import Axis, Lines, dots

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
FOLDER = DOCS / "images" / "benchmarks"

TIMES = "times as long as ours, logarithmic"

XGBOOST_MODELS = {
    "cal_housing-small": "XGBoost, cal_housing, depth 3",
    "adult-small": "XGBoost, adult, depth 3",
    "covtype-small": "XGBoost, covtype, depth 3",
    "fashion_mnist-small": "XGBoost, MNIST, depth 3",
    "cal_housing-d6": "XGBoost, cal_housing, depth 6",
    "cal_housing-d6-0.1": "the same, learning rate 0.1",
    "cal_housing-med": "XGBoost, cal_housing, depth 8",
    "cal_housing-med-0.1": "the same, learning rate 0.1",
    "adult-med": "XGBoost, adult, depth 8",
    "covtype-med": "XGBoost, covtype, depth 8",
    "fashion_mnist-med": "XGBoost, MNIST, depth 8",
    "cal_housing-large": "XGBoost, cal_housing, depth 16",
    "adult-large": "XGBoost, adult, depth 16",
    "covtype-large": "XGBoost, covtype, depth 16",
    "fashion_mnist-large": "XGBoost, MNIST, depth 16",
}
OTHER_MODELS = {
    "rf-adult-8": "random forest, adult, depth 8",
    "rf-superconductor-8": "random forest, superconductor, depth 8",
    "rf-adult-16": "random forest, adult, depth 16",
    "rf-superconductor-16": "random forest, superconductor, depth 16",
    "lightgbm-adult": "LightGBM, adult",
    "histgb-adult": "HistGradientBoosting, adult",
}


def models(name: str) -> dict[str, dict[str, Any]]:
    """Return the latest results of each model of a benchmark, by the model's name."""
    runs = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
    return {model["name"]: model for run in runs for model in run["models"]}


def medians(model: dict[str, Any], systems: dict[str, str], field: str) -> dict[str, float]:
    """Return the medians of a field of the systems that have it, by the labels of the systems."""
    found = model["systems"]
    return {
        label: found[name][field]["median"] for name, label in systems.items() if field in found.get(name, {})
    }


def values() -> str:
    systems = {
        "xgboost": "the model's library",
        "lightgbm": "the model's library",
        "shap": "shap",
        "fasttreeshap": "Fast TreeSHAP",
        "shapiq": "shapiq",
        "woodelf": "Woodelf",
    }
    found = models("values")
    lines: Lines = [
        (label, medians(found[name], systems, "seconds_over_ours"))
        for name, label in {**XGBOOST_MODELS, **OTHER_MODELS}.items()
        if name in found
    ]
    axis = Axis(TIMES, 30, 600, (30, 50, 100, 200, 300, 500))
    note = "SHAP values of 10,000 rows, one thread; medians of five paired ratios"
    return dots("Values on the CPU", note, axis, lines, list(dict.fromkeys(systems.values())))


def interactions() -> str:
    systems = {"shap": "shap", "xgboost": "XGBoost"}
    found = models("interactions")
    lines: Lines = [
        (label, medians(found[name], systems, "seconds_over_ours"))
        for name, label in {**XGBOOST_MODELS, **OTHER_MODELS}.items()
        if name in found
    ]
    axis = Axis(TIMES, 50, 4_000, (50, 100, 200, 500, 1_000, 2_000, 4_000))
    note = "SHAP interaction values of all pairs, 2,000 rows, one thread; medians of paired ratios"
    return dots("Interactions on the CPU", note, axis, lines, list(systems.values()))


def background() -> str:
    systems = {"shap": "shap", "shapiq": "shapiq", "woodelf": "Woodelf"}
    lines: Lines = []
    for name, model in models("background").items():
        lines.append((XGBOOST_MODELS[name], {}))
        for case in model["backgrounds"]:
            (rows,) = (each for each in case["rows"] if each["rows"] == 10_000)
            label = f"{case['background_rows']:,} background rows"
            lines.append((label, medians(rows, systems, "seconds_over_ours")))
    axis = Axis(TIMES, 50, 100_000, (100, 1_000, 10_000, 100_000))
    note = "Interventional SHAP values of 10,000 rows, one thread, explainer made before; medians"
    return dots("Background data on the CPU", note, axis, lines, list(systems.values()))


def _on_a_gpu(name: str, title: str, note: str, axis: Axis) -> str:
    labels = {"kernel": "rows and values on the GPU", "ours": "NumPy to NumPy"}
    found = models(name)
    lines: Lines = []
    for model, label in XGBOOST_MODELS.items():
        if model in found:
            ratios = medians(found[model], labels, "seconds_over_xgboost")
            lines.append((label, {system: 1 / ratio for system, ratio in ratios.items()}))
    return dots(title, note, axis, lines, list(labels.values()))


def values_cuda() -> str:
    axis = Axis("times XGBoost's rows/s, logarithmic", 20, 1_000, (20, 50, 100, 200, 500, 1_000))
    note = "SHAP values on one H100 or H200, XGBoost on the same GPU; medians of five rounds"
    return _on_a_gpu("values-cuda", "Values on a GPU", note, axis)


def interactions_cuda() -> str:
    axis = Axis("times XGBoost's rows/s, logarithmic", 5, 5_000, (5, 10, 100, 1_000, 5_000))
    note = "SHAP interaction values of all pairs on one H100 or H200, XGBoost on the same GPU; medians"
    return _on_a_gpu("interactions-cuda", "Interactions on a GPU", note, axis)


def scaling() -> str:
    """Draw the time for 20 million rows; that on the CPU is extrapolated from the largest run."""
    rows = 20_000_000

    def whole_runs(name: str) -> list[dict[str, Any]]:
        content = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
        return [model for run in content for model in run["models"]]

    on_gpus = {
        (run["processes"], tuple(run["devices"])): run["wall_seconds"]
        for run in whole_runs("scaling-cuda")
        if run["rows"] == rows
    }
    on_cores = max(whole_runs("scaling"), key=lambda run: (run["rows"], run["processes"]))
    lines: Lines = [
        ("TreeSHAP, 100 cores (paper)", {"": 14.7 * 60}),
        ("Fast TreeSHAP v2, 100 cores (paper)", {"": 4.9 * 60}),
        ("skshapgpu, 2 cores (extrapolated)", {"": rows / on_cores["rows_per_second"] / 60}),
        ("skshapgpu, one H200", {"": on_gpus[1, ("cuda",)] / 60}),
        ("skshapgpu, two H200", {"": on_gpus[2, ("cuda:0", "cuda:1")] / 60}),
    ]

    def write(minutes: float) -> str:
        return f"{round(minutes / 60, 1):g} h" if minutes >= 60 else f"{minutes:.2g} min"

    axis = Axis("time, logarithmic", 0.5, 3_000, (1, 10, 60, 600), write=write)
    note = "400 trees of depth 12, Parquet to Parquet; the paper's forest and data differ from ours"
    return dots("20 million rows", note, axis, lines, [""], bars=True)


def threads() -> str:
    cases = {
        "depth-16-1-row": "depth 16, 1 row",
        "depth-16-100-rows": "depth 16, 100 rows",
        "depth-16-10000-rows-auto": "depth 16, cells, 10,000 rows",
        "depth-8-1000-rows": "depth 8, walked, 1,000 rows",
        "depth-8-200000-rows": "depth 8, walked, 200,000 rows",
        "depth-8-200000-rows-auto": "depth 8, tables, 200,000 rows",
        "depth-8-1000-rows-processes": "depth 8, walked, processes",
    }
    systems = {"2": "2 threads", "4": "4 threads", "8": "8 threads", "16": "16 threads"}
    found = models("threads")
    lines: Lines = [
        (label, {systems[count]: found[name]["speed_over_first"][count] for count in systems})
        for name, label in cases.items()
    ]
    axis = Axis("times as fast as one thread", 0, 16, (0, 2, 4, 8, 12, 16), logarithmic=False)
    note = "XGBoost models of 100 trees on a virtual machine of 16 cores; medians"
    return dots("One to sixteen threads", note, axis, lines, list(systems.values()))


def distributed() -> str:
    names = {"local": "TreeExplainer", "dask": "Dask", "spark": "Spark", "ray": "Ray"}
    workers = {"1": "one worker or thread", "2": "two"}
    runs = json.loads((RESULTS / "distributed.json").read_text())["runs"]
    (model,) = runs[-1]["models"]
    lines: Lines = [
        (
            label,
            {
                each: model["systems"][f"{name}-{count}"]["speed_over_local_1"]
                for count, each in workers.items()
            },
        )
        for name, label in names.items()
    ]
    axis = Axis("speed, times that of one thread", 0, 2, (0, 0.5, 1, 1.5, 2), logarithmic=False)
    note = f"{model['rows']:,} rows in {model['parts']} partitions, two cores; medians of five rounds"
    return dots("Overhead of the engines", note, axis, lines, list(workers.values()))


def selection() -> str:
    names = {
        "ShapBoruta": "ShapBoruta, 3 splits",
        "BorutaShap": "BorutaShap, one split",
        "ShapRFECV": "ShapRFECV, 3 splits",
        "probatus.ShapRFECV": "probatus, 3 splits",
    }
    labels = {"seeds_with_all_planted": "all five found", "seeds_with_planted_only": "only these"}
    lines: Lines = []
    for model, heading in {"forest": "Random forest", "boosting": "Gradient boosting"}.items():
        methods = models("selection")[model]["methods"]
        lines.append((heading, {}))
        for name, label in names.items():
            lines.append((label, {each: methods[name][field] for field, each in labels.items()}))
    axis = Axis("data sets", 0, 20, (0, 5, 10, 15, 20), logarithmic=False)
    note = "20 generated data sets of 20 columns, five of which determine y"
    return dots("Columns found", note, axis, lines, list(labels.values()))


def drift() -> str:
    cases = {
        "unchanged": "unchanged",
        "shifted": "a feature shifted",
        "swapped": "two columns swapped",
        "effect": "a feature has lost half of its effect",
        "retrained": "retrained on other rows, no change",
    }
    alarms = {
        "alarms_of_distance": "relative distance above 0.2",
        "alarms_of_psi": "PSI above 0.25",
        "alarms_of_ndcg": "nDCG below 0.9",
    }
    found = models("drift")
    lines: Lines = [
        (label, {each: found[name][field] for field, each in alarms.items()}) for name, label in cases.items()
    ]
    axis = Axis("populations with an alarm", 0, 20, (0, 5, 10, 15, 20), logarithmic=False)
    note = "20 generated populations, 5,000 reference rows and 5,000 current rows"
    return dots("Alarms", note, axis, lines, list(alarms.values()))


def patch_shap() -> str:
    cases = {
        "explainerdashboard": "explainerdashboard, shortest example",
        "explainerdashboard-options": "explainerdashboard, longer example",
        "shapash": "shapash",
        "powershap": "powershap, CatBoost",
        "powershap-forest": "powershap, random forest",
    }
    systems = {"patched": "patched", "shap": "shap"}
    found = models("patch-shap")
    lines: Lines = [
        (label, {systems[name]: found[case]["median_seconds"][name] for name in systems})
        for case, label in cases.items()
    ]
    axis = Axis("seconds, logarithmic", 0.2, 100, (0.2, 1, 10, 100))
    note = "Everything that the examples do, on one processor; medians of five rounds"
    return dots("Examples of other packages", note, axis, lines, list(systems.values()))


def latency() -> str:
    systems = {"cuda": "H100", "cpu-all": "16 cores", "cpu-1": "one core"}
    lines: Lines = []
    for name in ("cal_housing-d6", "cal_housing-med", "cal_housing-large"):
        model = models("latency")[name]
        lines.append((XGBOOST_MODELS[name], {}))
        for count, found in model["rows"].items():
            label = "1 row" if count == "1" else f"{int(count):,} rows"
            lines.append(
                (label, {each: 1_000 * found[system]["seconds"] for system, each in systems.items()})
            )
    axis = Axis("milliseconds, logarithmic", 0.1, 10_000, (0.1, 1, 10, 100, 1_000, 10_000))
    note = "One call, NumPy to NumPy; medians"
    return dots("A call on a GPU and on its host", note, axis, lines, list(systems.values()))


def serving() -> str:
    """Draw the latencies of requests for one row."""
    libraries = {"xgboost": "XGBoost, 100 trees of depth 8", "lightgbm": "LightGBM, 300 trees of 31 leaves"}
    libraries["catboost"] = "CatBoost, 300 trees of depth 6"
    cases = {
        "array, 1 rows, 1 threads": "array, a call at a time",
        "array, 1 rows, 8 threads": "array, eight threads",
        "frame, 1 rows, 1 threads": "data frame, a call at a time",
        "HTTP, 1 rows, 1 clients": "over HTTP, a request at a time",
        "HTTP, 1 rows, 8 clients": "over HTTP, eight clients",
    }
    results = models("serving")
    lines: Lines = []
    for library, heading in libraries.items():
        lines.append((heading, {}))
        for case, label in cases.items():
            latencies = results[f"{library}, {case}"]["latencies_us"]
            systems = {"ours": latencies["skshapgpu"], "the library's": latencies[library]}
            lines.append(
                (
                    label,
                    {
                        f"{name}, {percent} %": own[f"p{percent}"] / 1_000
                        for percent in (50, 99)
                        for name, own in systems.items()
                    },
                )
            )
    axis = Axis("milliseconds, logarithmic", 0.02, 500, (0.1, 1, 10, 100))
    note = "SHAP values of one row: latency of half and of 99 % of the calls, on two cores"
    return dots("Requests of a process that serves", note, axis, lines, list(lines[1][1]))


#: Name of a picture, and what draws it.
CHARTS: dict[str, Callable[[], str]] = {
    "values": values,
    "interactions": interactions,
    "background": background,
    "values_cuda": values_cuda,
    "interactions_cuda": interactions_cuda,
    "scaling": scaling,
    "threads": threads,
    "distributed": distributed,
    "selection": selection,
    "drift": drift,
    "patch_shap": patch_shap,
    "latency": latency,
    "serving": serving,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in CHARTS.items():
        (FOLDER / f"{name}.svg").write_text(draw())
