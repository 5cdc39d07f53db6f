"""The state of training as files: each rank writes its own part, any number of ranks can load them.

The files are those of torch.distributed.checkpoint, so that FSDP can load what DDP saved and the
reverse. They hold tensors only, under flat names: `model.<name>`, and those of `optimizer_state`.
torch pickles the index of the files; our unpickler accepts only the classes that such an index
contains.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainers.checkpointing import optimizer_state

INDEX_NAME = ".metadata"
_MODEL = "model."

State = dict[str, Any]

# The classes in an index of tensors. If a new torch version needs another class, review the class
# before you add it.
_INDEX_CLASSES = {
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath"},
    "torch": {"Size", "device", "float64", "float32", "bfloat16", "float16"}
    | {"int64", "int32", "uint8", "bool"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {"ChunkStorageMetadata", "Metadata", "MetadataIndex"}
    | {"StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"},
    "torch.serialization": {"_get_layout"},
}


def state_of(
    network: nn.Module, optimizer: Optimizer, further: Mapping[str, Tensor] | None = None
) -> State:
    """Return the tensors themselves, not copies, and the optimizer's numbers as tensors.

    `further` are tensors by name that the state holds, too.

    Raises:
        LaunchInvalid: the optimizer keeps what a checkpoint cannot hold.
    """
    model = {_MODEL + name: tensor for name, tensor in network.state_dict().items()}
    return model | optimizer_state.state_of(network, optimizer) | dict(further or {})


def fingerprint(network: nn.Module) -> str:
    """Return a hash of the names, shapes and types of a network's tensors, without their values."""
    tensors = [
        [name, list(tensor.shape), str(tensor.dtype)]
        for name, tensor in network.state_dict().items()
        if isinstance(tensor, Tensor)
    ]
    return hashlib.sha256(json.dumps(tensors).encode()).hexdigest()


def staged(state: State, into: State | None = None) -> State:
    """Copy the state to the CPU's memory, where training does not change it.

    CUDA tensors are copied to pinned memory asynchronously; the host waits once, at the end. `into`
    is an earlier copy that the caller no longer needs: it is overwritten if its tensors have the
    same shapes, since the allocation would take longer than the copy.
    """
    if into is None or _shapes(into) != _shapes(state):
        on_cuda = any(local(value).is_cuda for value in state.values())
        return BlockingAsyncStager(cache_staged_state_dict=on_cuda).stage(state)
    for name, value in state.items():
        local(into[name]).copy_(local(value), non_blocking=True)
    for device in {local(value).device for value in state.values() if local(value).is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return into


def _shapes(state: State) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (local(value).shape, value.dtype) for name, value in state.items()}


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def write(folder: Path, state: State, group: dist.ProcessGroup | None) -> None:
    """Write this rank's part, and on rank 0 the index. A collective call of all ranks.

    Files in the folder are overwritten. `group` is a Gloo group of all ranks; None for one rank.

    Raises:
        Exception: the failure of the first rank that failed, such as OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _failures_as_they_are():
        save(
            state,
            storage_writer=FileSystemWriter(folder, sync_files=True),
            process_group=group,
            no_dist=group is None,
        )


def read(
    folder: Path,
    network: nn.Module,
    optimizer: Optimizer,
    group: dist.ProcessGroup | None,
    further: Mapping[str, Tensor] | None = None,
) -> None:
    """Load a checkpoint of any number of ranks. A collective call of all ranks.

    Raises:
        pickle.UnpicklingError: the index contains a class that is not in `_INDEX_CLASSES`.
        LaunchInvalid: the optimizer has other state than the checkpoint.
        Exception: another failure of the first rank that failed.
    """
    reader = _Reader(folder)
    stored = {
        name: entry.properties.dtype
        for name, entry in reader.read_metadata().state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)  # `_TensorsOnly` refuses all others
    }
    optimizer_state.create(network, optimizer, stored)
    state = state_of(network, optimizer, further)
    with _failures_as_they_are():
        load(
            state,
            storage_reader=reader,
            planner=_TensorsOnly(),
            process_group=group,
            no_dist=group is None,
        )
    optimizer_state.restore_numbers(network, optimizer, state)


@contextlib.contextmanager
def _failures_as_they_are() -> Generator[None]:
    """Replace a CheckpointException, which is no Exception, with the first failure in it."""
    with warnings.catch_warnings():
        # torch warns that one rank has no process group.
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        # A killed run may have left files of this step, or its checkpoint was skipped as corrupt.
        warnings.filterwarnings("ignore", "Detected an existing checkpoint", UserWarning)
        try:
            yield
        except CheckpointException as error:
            raise next(iter(error.failures.values()))[0] from error


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "pathlib._local":  # the module of PosixPath in Python 3.13 only
            module = "pathlib"
        if name not in _INDEX_CLASSES.get(module, ()):
            raise pickle.UnpicklingError(f"a checkpoint's index does not hold {module}.{name}")
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        content = (Path(self.path) / INDEX_NAME).read_bytes()
        return _IndexUnpickler(io.BytesIO(content)).load()


class _TensorsOnly(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        del value
        raise pickle.UnpicklingError(f"{read_item.storage_index.fqn} is not a tensor")
