"""What goes in and out of the engine: frozen values and errors, free of torch.

This room knows nothing of tokens or tensors; both packages import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Mode = Literal["verified", "free", "ar"]
Want = Literal["line", "block"]
#: What follows is for models that denoise masks themselves; `engine.policy`, `engine.lengths` and
#: `engine.slot_loop` say what each name does.
PolicyName = Literal[
    "one_per_step", "confidence", "factor", "entropy", "margin", "top_k", "speculative"
]
LengthName = Literal["fixed", "grow", "edit", "probe"]
RemaskName = Literal["none", "remdm", "score"]
MOST_SLOTS = 512

#: Version of the wire between `dlsp` and `engine`; a client replaces an engine of another version.
WIRE_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Text of another place that may help: `path` as the model should see it, with slashes."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillRequest:
    """One hole: the whole text on both sides of the cursor and how it should be filled.

    `prefix` and `suffix` are text (LF or CRLF as in the file); the engine cuts them to its token
    budget. `max_tokens` bounds the returned tokens. `deadline_ms` counts from the engine's receipt;
    when it strikes, the longest valid prefix of what is committed is returned (None: no deadline).
    With nothing worth showing by then, the answer may take up to `patience_ms` (from receipt too).
    `guess` is text that may well come here, such as what is left of an earlier suggestion: the
    first source of drafts. `snippets` are shown to the model before the prefix, the best last; they
    are looked at when the context is anchored anew, not at every keystroke. `idle` marks work that
    nobody waits for yet: any other request ends it.
    `steps` and `threshold` are for mode `free`: denoising steps per canvas (the last closes it),
    and the confidence from which a slot commits early; 1.0 commits one slot per step, and with
    `steps` at least the number of slots that is the one-per-step reference. `healing` off leaves
    both edges of the hole as they are; for measuring what it is worth.
    Models that denoise masks themselves take a `policy` (None: the model's own) and its `strength`
    (None: the policy's own), `left_bias` towards the left, `remask` for committed tokens, `length`
    strategy (None: the model's own) with `slots` to begin with (None: the strategy's own), and
    `exact`, which never takes keys and values that an exact pass would change.
    """

    prefix: str
    suffix: str = ""
    max_tokens: int = 64
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    language: str | None = None
    path: str | None = None
    want: Want = "line"
    mode: Mode = "verified"
    deadline_ms: float | None = None
    syntax: bool = True
    steps: int = 4
    threshold: float = 0.6
    healing: bool = True
    patience_ms: float = 2000.0
    guess: str = ""
    snippets: tuple[Snippet, ...] = ()
    idle: bool = False
    policy: PolicyName | None = None
    strength: float | None = None
    left_bias: float = 0.0
    remask: RemaskName = "none"
    length: LengthName | None = None
    slots: int | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise BadRequest("max_tokens must be at least 1")
        if not 0.0 <= self.temperature <= 2.0:
            raise BadRequest("temperature must lie between 0 and 2")
        if self.want not in ("line", "block"):
            raise BadRequest(f"want must be 'line' or 'block', not {self.want!r}")
        if self.mode not in ("verified", "free", "ar"):
            raise BadRequest(f"mode must be 'verified', 'free' or 'ar', not {self.mode!r}")
        if not 1 <= self.steps <= 64 or not 0.0 <= self.threshold <= 1.0:
            raise BadRequest("steps must lie between 1 and 64, threshold between 0 and 1")
        if self.deadline_ms is not None and self.deadline_ms <= 0:
            raise BadRequest("deadline_ms must be positive")
        if self.patience_ms < 0:
            raise BadRequest("patience_ms must not be negative")
        self._check_denoising()

    def _check_denoising(self) -> None:
        for name, value, known in (
            ("policy", self.policy, get_args(PolicyName)),
            ("length", self.length, get_args(LengthName)),
            ("remask", self.remask, get_args(RemaskName)),
        ):
            if value is not None and value not in known:
                raise BadRequest(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if self.policy == "speculative" and self.remask != "none":
            raise BadRequest("policy speculative writes what one_per_step does: use remask none")
        if (self.strength is not None and self.strength < 0) or self.left_bias < 0:
            raise BadRequest("strength and left_bias must not be negative")
        if self.slots is not None and not 1 <= self.slots <= MOST_SLOTS:
            raise BadRequest(f"slots must lie between 1 and {MOST_SLOTS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """How many of the returned tokens came from where; `memory`: from the request's guess, or from
    a request before that was cut off."""

    base: int = 0
    lookup: int = 0
    denoiser: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Milliseconds per stage of one request inside the engine."""

    queue: float = 0.0
    encode: float = 0.0
    denoise: float = 0.0
    verify: float = 0.0
    syntax: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillResult:
    """The filled hole. `text` is only the new text between prefix and suffix.

    `tokens` counts the tokens of the returned text, `forwards` the base forwards that produced them
    (encoding the context not included), `steps` the denoising steps. `near_ties` counts choices
    whose top-2 logit margin lay under the model's epsilon. `syntax` is the verdict on the whole
    document: ok, broken (then `text` is empty) or unknown (no grammar). `kernels` names what
    computed it, `graphs` counts the canvases that were filled in a CUDA graph.
    """

    text: str
    finish_reason: Literal["stop", "length", "deadline", "cancelled", "syntax", "empty"]
    model: str
    mode: Mode
    tokens: int = 0
    forwards: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    near_ties: int = 0
    sources: Sources = field(default_factory=Sources)
    syntax: Literal["ok", "broken", "unknown"] = "unknown"
    repaired: bool = False
    confidence: float = 0.0
    kernels: str = "cpu"
    graphs: int = 0
    ms: StageTimes = field(default_factory=StageTimes)

    @property
    def tokens_per_forward(self) -> float:
        """Returned tokens per base forward; 1.0 for `ar` by definition."""
        return self.tokens / self.forwards if self.forwards else 0.0


class EngineError(Exception):
    """An expected failure. The message is one line that says what to do; never a traceback."""

    code = "engine_error"
    http_status = 500
    exit_code = 1


class BadRequest(EngineError):
    """The request itself is wrong."""

    code, http_status, exit_code = "bad_request", 400, 2


class UnknownModel(EngineError):
    """No catalogue entry and no folder of that name."""

    code, http_status, exit_code = "unknown_model", 404, 2


class WeightsError(EngineError):
    """Weights are missing, corrupt, or of an architecture we cannot run."""

    code, http_status, exit_code = "weights", 503, 3


class DownloadError(EngineError):
    """No source answered, or the disk is full."""

    code, http_status, exit_code = "download", 503, 4


class EndpointError(EngineError):
    """The address to listen on is taken or not ours."""

    code, http_status, exit_code = "endpoint", 503, 5
