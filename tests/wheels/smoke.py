"""Try an installed wheel: ``python smoke.py README.md``. The four libraries and pyarrow must be installed.

CatBoost, which has no wheels for Python 3.15 yet, is left out there.

The values of a model of each library must add up to its own prediction. A transformer in a pipeline, a saved
explainer, batches and the quickstart of the README must work as well.
"""

from __future__ import annotations

import contextlib
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skshapgpu import ShapTransformer, TreeExplainer, _core, cuda_info, explain_batches

PAGE_CODE = Path(__file__).resolve().with_name("page_code.py")

#: Compute capabilities for which wheels with the GPU module have kernels.
COMPUTE_CAPABILITIES = {(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)}

#: The largest gap in single precision, relative to the margin or 1.
TOLERANCE = 1e-5


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    best = best_instruction_set()
    assert _core.instruction_set() == best, f"{_core.instruction_set()} is used instead of {best}"
    built_for = cuda_info()["compute_capabilities"]
    assert set(built_for) in (set(), COMPUTE_CAPABILITIES), f"the GPU module is only for {built_for}"
    for name, model, predict in models():
        explanation = TreeExplainer(model.fit(X, y)).explain(X)
        margin = np.ravel(predict(model, X))
        gap = np.abs(explanation.base_values + explanation.values.sum(axis=1) - margin)
        assert np.ptp(margin) > 0.5
        assert (gap <= TOLERANCE * np.maximum(1, np.abs(margin))).all(), f"{name}: a gap of {gap.max()}"
        print(f"{name}: {explanation.values.shape}, largest gap {gap.max():.1e}")

    forest = RandomForestClassifier(20, random_state=0)
    pipeline = make_pipeline(ShapTransformer(forest), LogisticRegression(max_iter=1_000)).fit(X, y)
    score = pipeline.score(X, y)
    assert score > 0.9
    print(f"transformer in a pipeline: accuracy {score:.2f}")

    with tempfile.TemporaryDirectory() as folder:
        # With "auto", the GPU may explain all rows but the CPU the batches, and the last digits differ.
        device = "cuda" if cuda_info()["available"] else "cpu"
        explainer = TreeExplainer(forest.fit(X, y), device=device)
        explainer.save(Path(folder, "explainer.npz"))
        loaded = TreeExplainer.load(Path(folder, "explainer.npz"), device=device)
        expected = explainer.shap_values(X)
        np.testing.assert_array_equal(loaded.shap_values(X), expected)
        np.save(Path(folder, "X.npy"), X)
        explain_batches(explainer, Path(folder, "X.npy"), Path(folder, "values.npy"), batch_size=100)
        np.testing.assert_array_equal(np.load(Path(folder, "values.npy")), expected)
    print(f"saved, loaded and explained in batches on {device}: the same values")

    readme = Path(sys.argv[1]).read_text(encoding="utf-8")
    quickstart = readme[readme.index("## Quickstart") :].partition("\n## ")[0]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # By its path, as the folder of this script need not be among those that Python imports from.
        shown = runpy.run_path(str(PAGE_CODE))["run"](quickstart, {"__name__": "__main__"})
    assert shown >= 2
    print(f"the README's quickstart runs, and its {shown} outputs are those that it shows")
    subprocess.run([sys.executable, "-m", "skshapgpu", "doctor"], check=True)


def models() -> list:
    """Return a name and a model of each library, and its raw prediction."""
    import lightgbm
    import xgboost

    families = [
        (
            "scikit-learn",
            RandomForestClassifier(50, max_depth=8, random_state=0),
            lambda model, X: model.predict_proba(X)[:, 1],
        ),
        (
            "XGBoost",
            xgboost.XGBClassifier(n_estimators=50, n_jobs=1),
            lambda model, X: model.predict(X, output_margin=True),
        ),
        (
            "LightGBM",
            lightgbm.LGBMClassifier(n_estimators=50, n_jobs=1, verbose=-1),
            lambda model, X: model.predict(X, raw_score=True),
        ),
    ]
    if sys.version_info < (3, 15):
        import catboost

        families.append(
            (
                "CatBoost",
                catboost.CatBoostClassifier(50, verbose=0, allow_writing_files=False, thread_count=1),
                lambda model, X: model.predict(X, prediction_type="RawFormulaVal"),
            )
        )
    return families


def best_instruction_set() -> str:
    """Return the best instruction set of the processor, as NumPy sees it."""
    from numpy._core._multiarray_umath import __cpu_features__ as has

    if all(has.get(name) for name in ("AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL")):
        return "avx512"
    if has.get("AVX2") and has.get("FMA3"):
        return "avx2"
    return "neon" if has.get("NEON") else "baseline"


if __name__ == "__main__":
    main()
