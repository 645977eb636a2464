"""What is trained: the figures of a network and its data that decide what training moves."""

from dataclasses import dataclass, fields
from numbers import Integral, Real

from perfmodel.errors import UnknownNameError, WorkloadError
from perfmodel.files import read_toml, write_whole

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network and the data that it is trained on.

    A figure that is not known is None, never a guess; what needs it says so.

    Parameters
    ----------
    name : str
        Name that logs call it by.
    parameters : int
        Trainable parameters.
    source : str
        Where the figures come from.
    gradient_tensors : tuple of int
        Elements of each gradient tensor, in the order in which the backward pass completes them.
    gradient_ready : tuple of float
        Share of the backward pass after which each of those tensors is complete.
    forward_flops_per_sample, backward_flops_per_sample : float
        Floating-point operations of one sample. [flop]
    bucket_bytes, first_bucket_bytes : int
        Gradients are summed in buckets: a bucket is closed once it holds this much. The defaults
        are those of PyTorch's DistributedDataParallel. [B]
    sample_bytes : float
        Mean size of a sample on storage. [B]
    dataset_samples : int
        Samples of one epoch.
    samples_to_target_min, critical_batch : float
        Samples to the target with a small batch, and the batch that doubles them.

    Raises
    ------
    WorkloadError
        If a figure contradicts another or is out of range (also a `ValueError`).

    Examples
    --------
    >>> w = Workload(name="mlp", parameters=1000, gradient_tensors=(600, 400))
    >>> w.gradient_bytes
    4000
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic reads it in `from_toml`)

    name: str
    parameters: int
    source: str | None = None
    gradient_tensors: tuple[int, ...] | None = None
    gradient_ready: tuple[float, ...] | None = None
    forward_flops_per_sample: float | None = None
    backward_flops_per_sample: float | None = None
    bucket_bytes: int = 25 * _MIB
    first_bucket_bytes: int = _MIB
    sample_bytes: float | None = None
    dataset_samples: int | None = None
    samples_to_target_min: float | None = None
    critical_batch: float | None = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _TEXTS or (value is None and field.default is None):
                continue
            values = value if field.name in _LISTS else [value]
            if not all(_is_number(v, field.name in _WHOLE) for v in values):
                kind = "a whole number" if field.name in _WHOLE else "a number"
                raise WorkloadError(f"{self.name}: {field.name} is {value!r}; expected {kind}")
            if not all(0 < v < float("inf") for v in values) and field.name != "gradient_ready":
                raise WorkloadError(f"{self.name}: {field.name} is {value}; it must be above 0")
        tensors, ready = self.gradient_tensors, self.gradient_ready
        if tensors is not None:
            object.__setattr__(self, "gradient_tensors", tuple(tensors))
            if sum(tensors) != self.parameters:
                raise WorkloadError(
                    f"{self.name}: gradient_tensors add up to {sum(tensors)} elements, "
                    f"parameters is {self.parameters}; give each tensor once"
                )
        if ready is not None:
            object.__setattr__(self, "gradient_ready", tuple(ready))
            if tensors is None or len(ready) != len(tensors):
                raise WorkloadError(
                    f"{self.name}: gradient_ready needs one share for each of gradient_tensors"
                )
            if list(ready) != sorted(ready) or ready[0] < 0 or ready[-1] > 1:
                raise WorkloadError(f"{self.name}: gradient_ready must rise from 0 to 1")

    @property
    def gradient_bytes(self):
        """Bytes of all gradients in 32-bit numbers. [B]."""
        return self.parameters * ELEMENT_BYTES["fp32"]

    def require(self, *names):
        """Values of the figures named, or `WorkloadError` naming those that are not known."""
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise WorkloadError(f"workload {self.name!r} lacks {', '.join(missing)}; add it")
        return tuple(getattr(self, name) for name in names)

    def buckets(self, dtype="fp32"):
        """Gradient buckets in the order in which they are summed.

        Tensors are put into a bucket in backward order until it holds its limit, as PyTorch's
        DistributedDataParallel does [1]_. Without `gradient_tensors`, the gradient is cut at the
        limits themselves; without `gradient_ready`, tensors complete evenly over the backward
        pass, one by one.

        Returns
        -------
        list of (int, float)
            Bytes of a bucket [B], and the share of the backward pass after which it is complete.

        References
        ----------
        .. [1] S. Li et al., "PyTorch distributed: experiences on accelerating data parallel
           training," Proc. VLDB Endow., vol. 13, no. 12, 2020, doi:10.14778/3415478.3415530.
        """
        element_bytes = ELEMENT_BYTES[dtype]
        tensors = self.gradient_tensors or self._even_tensors(element_bytes)
        n_tensors = len(tensors)
        ready = self.gradient_ready or [(i + 1) / n_tensors for i in range(n_tensors)]
        buckets, held_bytes, limit = [], 0, self.first_bucket_bytes
        for elements, share in zip(tensors, ready, strict=True):
            held_bytes += elements * element_bytes
            if held_bytes >= limit:
                buckets.append((held_bytes, share))
                held_bytes, limit = 0, self.bucket_bytes
        if held_bytes:
            buckets.append((held_bytes, ready[-1]))
        return buckets

    def _even_tensors(self, element_bytes):
        first = min(self.parameters, max(1, self.first_bucket_bytes // element_bytes))
        size = max(1, self.bucket_bytes // element_bytes)
        whole, rest = divmod(self.parameters - first, size)
        return [first] + [size] * whole + ([rest] if rest else [])

    @classmethod
    def from_toml(cls, path):
        """Read a workload from a TOML file whose keys are the parameters of this class.

        Raises
        ------
        MissingFileError
            If there is no such file (also a `FileNotFoundError`).
        WorkloadError
            If it is not TOML, or a key is unknown, missing or of a wrong type.
        """
        from pydantic import TypeAdapter, ValidationError

        values = read_toml(path, "workload file", WorkloadError)
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise WorkloadError(f"{path}: {UnknownNameError('key', key, known)}")
        try:
            return TypeAdapter(cls).validate_python(values)
        except WorkloadError as error:
            raise WorkloadError(f"{path}: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            if isinstance(first.get("ctx", {}).get("error"), WorkloadError):
                raise WorkloadError(f"{path}: {first['ctx']['error']}") from None
            key = ".".join(map(str, first["loc"]))
            raise WorkloadError(f"{path}: {key}: {first['msg'].lower()}") from None

    def to_toml(self, path):
        """Write the workload so that `from_toml` gives it back, replacing the file as a whole."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if isinstance(value, tuple):
                lines.append(f"{field.name} = [{', '.join(map(repr, value))}]")
            else:
                lines.append(f"{field.name} = {_toml(value)}")
        write_whole(path, "\n".join(lines) + "\n")


_TEXTS = ("name", "source")
_LISTS = ("gradient_tensors", "gradient_ready")
_WHOLE = ("parameters", "gradient_tensors", "bucket_bytes", "first_bucket_bytes", "dataset_samples")


def _is_number(value, whole):
    return isinstance(value, Integral if whole else Real) and not isinstance(value, bool)


def _toml(value):
    import json

    # A JSON string is a TOML basic string, but for the delete character, which JSON leaves bare.
    return json.dumps(value).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
