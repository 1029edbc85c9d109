"""ONNX: models whose predictions come from one tree ensemble operator."""
