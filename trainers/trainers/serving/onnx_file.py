"""The model as ONNX, for devices without torch: `--export onnx` of `train` and `evaluate`.

It is compared before it is kept.

model.onnx takes `pixels`, bytes of shape (N, C, size, size), and returns `logits`, shape (N,
classes); size, mode and classes are those of model.json.

export.json: `{"format": "onnx", "opset", "samples", "greatest_difference", "label_agreement",
"versions": {package: version}}`, of torch and ONNX Runtime on the same held-out samples.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.data.images import SampleSource, to_input
from trainers.detection.network import is_detector
from trainers.errors import ExportDiffers, LaunchInvalid
from trainers.files import write_atomically, write_json_atomically
from trainers.serving.model_folder import Model

_SAMPLES = 256
_LEAST_AGREEMENT = 0.99  # of labels: rounding turns those of images between two classes
_PACKAGES = ("onnxruntime", "onnxscript")


class _OfPixels(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network(to_input(pixels, pixels.device))


def check_exportable(model: Model, *, inputs_are_images: bool) -> None:
    """Refuse before training what could not be exported after it.

    Raises:
        LaunchInvalid: the model is not a classifier of images, or a package is missing.
    """
    if is_detector(model.network) or not inputs_are_images:
        raise LaunchInvalid(
            f"--export onnx is for classifiers of images, which {model.architecture} is not here: "
            "leave it out"
        )
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise LaunchInvalid(
            f"--export onnx needs {' and '.join(missing)}: pip install {' '.join(_PACKAGES)}, in a "
            "job by environment/conda.yml"
        )


def export_onnx(folder: Path, model: Model, held_out: SampleSource) -> None:
    """Write model.onnx and export.json, if ONNX Runtime computes what torch does.

    Raises:
        ExportDiffers: more than one label in a hundred differs; nothing is written.
    """
    runtime: Any = importlib.import_module("onnxruntime")
    pixels = held_out.take(torch.arange(min(_SAMPLES, len(held_out)))).inputs
    network = _OfPixels(model.network).eval().cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of what its exporter does
        program: Any = torch.onnx.export(
            network,
            (pixels[:2],),
            dynamo=True,
            verbose=False,
            input_names=["pixels"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("images")},),
        )
    content: bytes = program.model_proto.SerializeToString()
    with torch.no_grad():
        ours = network(pixels)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    theirs = torch.from_numpy(session.run(["logits"], {"pixels": pixels.numpy()})[0])
    agreement = (ours.argmax(dim=1) == theirs.argmax(dim=1)).double().mean().item()
    if agreement < _LEAST_AGREEMENT:
        raise ExportDiffers(
            f"ONNX Runtime gives {agreement:.1%} of {len(pixels)} held-out images the label that "
            "torch gives them: leave --export out, the trained weights are kept"
        )
    about = {
        "format": "onnx",
        "opset": program.model_proto.opset_import[0].version,
        "samples": len(pixels),
        "greatest_difference": (ours - theirs).abs().max().item(),
        "label_agreement": agreement,
        "versions": {name: importlib.metadata.version(name) for name in ("torch", *_PACKAGES)},
    }
    write_atomically(folder / "model.onnx", content)
    write_json_atomically(folder / "export.json", about)
