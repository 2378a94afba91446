"""Step lines of training frameworks, and where a job says that it saves or evaluates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from statistics import median

from oncall.importers.logs.line import Found, Line, Recogniser, event

_NS_PER_S = 1e9
_BAR = re.compile(
    r"(?<!\d)(?P<step>\d+)/(?P<most>\d+) \[(?:[\d:]+|\?)<(?:[\d:]+|"
    r"\?)(?:,\s*(?P<rate>[\d.]+)(?P<unit>s/it|it/s))?"
)
# A bar is of training if it says so, or has no title.
_OF_EVALUATION = re.compile(
    r"[Ee]val|[Vv]alid|[Pp]redict|[Ss]anity|[Gg]enerat|[Ii]nferen|[Bb]enchmark|\b[Tt]est"
)
_OF_TRAINING = re.compile(
    r"[Ee]poch|[Tt]rain|[Ll]oss|[Ss]tep|[Ii]ter|[Bb]atch|[Uu]pdate|[Ff]inetun"
)
_PART = re.compile(r"\d{1,3}%\|")  # a bar's title is before it
_OF_EPOCH = re.compile(r"[Ee]poch")  # what it counts ends with the epoch, not with the job
_SAMPLES = re.compile(r"\b(?:Curr)?SamplesPerSec=(?P<rate>[\d.]+)")
# Megatron's timers, one a line below this heading, or each with it: all that it says of ranks.
_TIMERS = "across ranks (ms)"
_TIMER = re.compile(
    r"^\s*(?P<name>[a-z][\w/-]{1,60}) \.*: (?:\(min, max\) (?:time )?across ranks \(ms\): )?"
    r"\((?P<least>\d{1,9}\.\d+), (?P<most>\d{1,9}\.\d+)\)"
)
_MOST_TIMERS = 24
# With `--timing-log-option all` a block for each timer, with a line for each rank.
_TIMER_NAME = re.compile(r"^\s*(?P<name>[a-z][\w/-]{1,60}):\s*$")
_TIMER_OF_RANK = re.compile(r"^\s*rank\s+(?P<rank>\d{1,6}): (?P<time>\d{1,9}\.\d+)\s*$")
_MOST_TIMER_LINES = 1 << 12
# Detectors of slow ranks: NVRx's names them, Megatron's prints the extremes of each report.
_STRAGGLERS = re.compile(
    r"^(?>.*?STRAGGLER DETECTION WARNING: )(?>.*? Affected ranks: )(?P<list>.*)"
)
_STRAGGLER = re.compile(r"(?:rank=|[\[{, ])(?P<rank>\d{1,6})\b")
_EXTREMES = re.compile(
    r"MnEtpt/Rnk: (?P<least>\d{1,9}\.\d++)\w*+/(?P<rank>\d{1,6}) \| "
    r"MxEtpt/Rnk: (?P<most>\d{1,9}\.\d+)"
)
# Of Megatron; torchtitan; PyTorch's ImageNet; fairseq; OpenCLIP and PyTorch's examples; MMEngine;
# timm; DINO and MAE; Composer, OLMo; Keras. Those of one epoch state how many it has, not the job.
_FORMS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?>.*?iteration\s+(?P<step>\d+)/\s*(?P<most>\d+) \|).*elapsed time per iteration "
        r"\((?:ms\): (?P<ms>[\d.]+)|s\): (?P<time>[\d.]+))",
        r"^(?>.*?\bstep:\s+(?P<step>\d+)\s+loss:).*\btps: (?P<rate>[\d,.]+)",
        r"Epoch: ?\[\d+\] ?\[ *(?P<step>\d+)/\d+\]\s+Time\s+(?P<time>[\d.]+)",
        r"^(?>.*?\bups\W{1,4}(?P<often>[\d.]++)).*\bnum_updates\W{1,4}(?P<step>\d+)",
        r"Train Epoch: \d+ \[ *(?P<step>\d+)/\d+ \(\s*\d+%\)\]"
        r"(?:.*Batch \(t\): (?P<time>[\d.]+))?",
        r"(?:Epoch|Iter)\(train\) +(?:\[\d+\])?\[ *(?P<step>\d+)/\d+\]"
        r"(?:.* time: (?P<time>[\d.]+))?",
        r"^(?>.*?\bTrain: \d+ \[ *(?P<step>\d+)/\d+ ).*\bTime: (?P<time>[\d.]+)s",
        r"^(?>.*?Epoch: \[\d+\] +\[ *(?P<step>\d+)/\d+\] +eta: ).* time: (?P<time>[\d.]+)",
        r"^\[(?:batch|step)=(?P<step>\d+)/(?P<most>\d+)[,\]]",
        r"^ *(?P<step>\d+)/\d+ \[[=>.]+\] - (?:ETA: |.* (?P<ms>[\d.]+)ms/step)",
    )
)
_NO_NUMBER = re.compile(
    r"(?:\b|(?<=train_)|(?<=training_)|(?<=total_))loss['\"]?\s*+[:=]?\s*+\(?[+-]?(?:nan|inf)\b",
    re.I,
)
_HF = re.compile(r"\{'loss': [^{}]*'epoch': [\d.]+")
_STEP = re.compile(
    r"\b(?:(?:global|train|training|trainer)[_/])?(?:step|iter|iteration|batch)\b[ :=#\[]*"
    r"(?P<step>\d+)(?:/(?P<most>\d+))?",
    re.I,
)
_SECONDS = (
    (re.compile(r"\b(?:time|step_time|iter_time|elapsed)\w*[ :=]+(?P<time>[\d.]+) ?ms"), 1e-3),
    (
        re.compile(r"(?<![\d.])(?P<time>[\d.]++) ?(?:s|sec|seconds) ?/ ?(?:step|it|iter|batch)\b"),
        1.0,
    ),
    (re.compile(r"(?<![\d.])(?P<time>[\d.]++) ?ms ?/ ?(?:step|it|iter|batch)\b"), 1e-3),
    (
        re.compile(
            r"\b(?:time|step_time|iter_time|"
            r"train_step_timing in s)[ :=]+(?P<time>[\d.]+)(?: ?s\b|\b)"
        ),
        1.0,
    ),
    (re.compile(r"\| (?P<time>[\d.]+) s\b"), 1.0),
    (re.compile(r"\bseconds: (?P<time>[\d.]+)"), 1.0),
)
# What an iteration consists of. `consumed_samples` and their like count all iterations.
_BATCH = re.compile(
    r"(?<!micro[_ -])(?<!mini[_ -])(?<!eval[_ ])\b(?P<whole>global[_ -]|train[_ -]|total[_ -])?"
    r"(?:batch[_ -]size|gbs|bsz)['\"]?\s*[:=]\s*(?P<number>\d{1,9})\b"
)
_ACCUMULATED = re.compile(
    r"\b(?:gradient_accumulation(?:_steps)?|grad_acc(?:um)?(?:_steps)?|accumulate_grad_batches|"
    r"num_micro_?batches)['\"]?\s*[:=]\s*(?P<number>\d{1,6})\b"
)
_LENGTH = re.compile(
    r"\b(?:max_)?seq(?:uence)?[_ -]?len(?:gth)?s?['\"]?\s*[:=]\s*(?P<number>\d{1,9})\b"
)
_TOKENS = re.compile(
    r"\b(?:tokens_per_step|(?:num_)?tokens_in_batch|(?:global_)?batch_(?:num_)?tokens|wpb)['\"]?"
    r"\s*[:=]\s*(?P<number>\d{1,12})\b"
)
_FLOPS = re.compile(
    r"(?:\bt?flops?(?:/s)?(?:[/_](?:per_)?gpu)?|TFLOPS?(?:/s)?(?:[/_](?:per_)?GPU)?\)?|\bmfu|\bMFU)"
    r"['\"]?\s*[:=]\s*(?P<flops>\d[\d.]*)"
)
# A line of its own that says so.
_WORK_CHANGES = re.compile(
    r"\b(?:[Rr]amp\w*|[Ii]ncreas\w+|[Dd]ecreas\w+|[Cc]hang\w+|[Ss]etting|[Ss]witch\w+|[Uu]pdat\w+)"
    r"\b.{0,40}(?:batch[_ -]?size|seq(?:uence)?[_ -]?len|gradient[_ -]accumulation|"
    r"micro-?batches)"
)
_RATE = re.compile(r"(?<![\d,.])(?P<rate>[\d,.]++) ?(?:tokens|toks|samples|it)/s(?:ec)?\b")
_DEVICE = re.compile(r"cuda:(\d+)")
_FINISHED = re.compile(
    r"\bdone training in [\d.]+ seconds|[Tt]raining (?:is )?(?:completed?|finished|done)|"
    r"after training is done|"
    r"[Ee]xiting program at iteration|exits successfully|"
    r"[Ee]xit(?:ed|ing|s)?(?: with)?[ _-]?(?:code|status)[ :=]{1,3}0\b|`Trainer\.fit` stopped|"
    r"train_runtime|Training ended|successfully finished training|"
    # Of an agent; Ray's command line; the report that LSF adds to a job's output.
    r"worker group (?:successfully finished|finished \((?:WorkerState\.)?SUCCEEDED\))|"
    r"^(?:.*-- )?Job '[\w-]+' succeeded$|^Successfully completed\.$"
)
_PHASES = (
    (
        "checkpoint_done",
        re.compile(
            r"successfully saved checkpoint|[Ss]aved (?:the )?(?:checkpoint|model)|"
            r"[Cc]heckpoint (?:was )?saved|[Ff]inished saving|"
            r"[Ss]aving (?:the )?checkpoint (?:took|finished)|[Mm]odel saved"
        ),
    ),
    (
        "checkpoint",
        re.compile(
            r"[Ss]aving (?:the |full |model |a )*(?:checkpoint|model|state|weights|"
            r"optimizer|adapter)|[Ss]ave (?:checkpoint|model) (?:to|at)|"
            r"[Ww]riting checkpoint|full model state dict|"
            r"^(?>.*?[Ss]aving\b).*(?:ckpt|checkpoint)|save_checkpoint|save_model|"
            r"[Uu]ploading checkpoint"
        ),
    ),
    (
        "evaluation_done",
        re.compile(
            r"valid(?:ation)? loss at|eval_loss|[Ee]valuation (?:finished|done|took)|'eval_\w+':"
        ),
    ),
    (
        "evaluation",
        re.compile(
            r"[Rr]unning [Ee]valuation|[Ee]valuating\b|[Ss]tart(?:ing)? (?:evaluation|"
            r"validation)|[Rr]unning validation|Validating\b|[Vv]alidation DataLoader|"
            r"[Bb]egin(?:ning)? (?:evaluation|validation)|"
            r"\*{3} (?:Running )?Evaluation"
        ),
    ),
)
_WORLD = re.compile(
    r"(?:\b(?:dist_)?world[_ ]size['\"]?\s?[:=]\s?|\bWORLD_SIZE['\"]?\s?[:=]\s?|"
    r"global_world_sizes=\[|[Nn]um[_ ]processes['\"]?[:=]\s?|of world size |"
    r"GLOBAL_RANK: \d+, MEMBER: \d+/|(?:^|[\[(,] ?|[Gg]lobal )[Rr]ank[ :=]{1,2}\d{1,6} ?(?:/|of) ?)"
    r"(\d{1,6})\b"
)
_OF_WORLD = ("world", "WORLD", "MEMBER", "ank", "processes")  # one is in each form: a quick look
# As a launcher is called, and as torchrun prints its configuration, over several lines.
_NODES = re.compile(
    r"--nnodes[= ](?P<nodes>\d{1,6})\b(?!:)|"
    r"\bmin_nodes\s*: (?P<least>\d{1,6})\s+max_nodes\s*: (?P=least)\b"
)
_LOCAL = re.compile(r"--?nproc[-_]per[-_]node[= ](\d{1,4})\b|\bnproc_per_node\s*: (\d{1,4})\b")


def _step(line: Line, found: re.Match[str], duration_s: float | None, rate: float | None) -> Found:
    device = _DEVICE.search(line.text)
    most = (
        None
        if _OF_EPOCH.search(line.text[: found.start("step")])
        else found.groupdict().get("most")
    )
    flops = _FLOPS.search(line.text)
    if rate is None:
        rated = _RATE.search(line.text) or _SAMPLES.search(line.text)
        rate = _number(rated["rate"]) if rated else None
    return Found(
        "logged_steps",
        {
            "iteration": int(found["step"]),
            "of_iterations": int(most) if most else None,
            "duration_ns": int(duration_s * _NS_PER_S) if duration_s else None,
            "rate": rate,
            "work": _work(line.text),
            "flops": _number(flops["flops"]) if flops else None,
            "process": device[0] if device else None,
        },
    )


def _work(text: str) -> float | None:
    """What a step's line says of how much the step is: tokens, or samples times their length."""
    if tokens := _TOKENS.search(text):
        return float(tokens["number"])
    batch, length = _BATCH.search(text), _LENGTH.search(text)
    accumulated = None if batch and batch["whole"] else _ACCUMULATED.search(text)
    factors = [int(one["number"]) for one in (batch, accumulated, length) if one]
    return float(prod(factors)) if factors and all(factors) else None


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return None


def _seconds(said: dict[str, str | None]) -> float | None:
    """A step's time where its form states it: in seconds, in milliseconds, or steps a second."""
    if often := _number(said.get("often") or ""):
        return 1 / often
    if millis := _number(said.get("ms") or ""):
        return millis * 1e-3
    return _number(said.get("time") or "")


def _steps_and_losses(line: Line) -> list[Found]:
    """A step, and whether its loss is no number."""
    found = _steps(line)
    if found and found[0].table == "logged_steps" and _NO_NUMBER.search(line.text):
        found.append(event("loss", "nan", text=line.text))
    return found


def _steps(line: Line) -> list[Found]:
    text = line.text
    if found := _BAR.search(text):
        title = _PART.split(text[: found.start()])[0].strip()
        if _OF_EVALUATION.search(title):
            return [event("phase", "evaluation", text=text)]
        if any(map(str.islower, title)) and not _OF_TRAINING.search(title):
            return []
        rate = _number(found["rate"] or "")
        if rate is None or rate <= 0:
            return [_step(line, found, None, None)]
        return [_step(line, found, rate if found["unit"] == "s/it" else 1 / rate, None)]
    for form in _FORMS:
        if found := form.search(text):
            said = found.groupdict()
            return [_step(line, found, _seconds(said), _number(said.get("rate") or ""))]
    found = _STEP.search(text)
    if found is None:
        return [Found("logged_steps", {"iteration": None})] if _HF.search(text) else []
    for pattern, factor in _SECONDS:
        if (timed := pattern.search(text)) and (seconds := _number(timed["time"])):
            return [_step(line, found, seconds * factor, None)]
    rated = _RATE.search(text) or _SAMPLES.search(text)
    rate = _number(rated["rate"]) if rated else None
    return [_step(line, found, None, rate)] if rate or "loss" in text or "skipped=" in text else []


def _timers(line: Line) -> list[Found]:
    """The quickest and the slowest rank's time of each timer; who they are is only printed where
    each rank's is."""
    rows = []
    for text in (line.text, *line.below(_MOST_TIMERS)):
        found = _TIMER.match(text)
        if found is None and text is not line.text:
            break
        if found is not None:
            spread_ns = int((float(found["most"]) - float(found["least"])) * _NS_PER_S / 1e3)
            said = f"{found['name']} {found['least']} to {found['most']} ms"
            rows.append(event("timer", found["name"], number=spread_ns, text=said))
    return rows or _timers_of_ranks(line)


def _timers_of_ranks(line: Line) -> list[Found]:
    """Of each timer with a line for each rank, the slowest rank, where it is beyond the median."""
    rows, name = [], ""
    times_ms: dict[int, float] = {}
    for text in (*line.below(_MOST_TIMER_LINES), ""):
        if found := _TIMER_OF_RANK.match(text):
            times_ms[int(found["rank"])] = float(found["time"])
            continue
        if name and len(times_ms) > 2:
            rows.append(_slowest(name, times_ms))
        heading = _TIMER_NAME.match(text)
        if heading is None:
            break
        name, times_ms = heading["name"], {}
    return rows


def _slowest(name: str, times_ms: dict[int, float]) -> Found:
    rank = max(times_ms, key=lambda one: times_ms[one])
    median_ms = median(times_ms.values())
    said = f"{name} {times_ms[rank]:.1f} ms, the median of {len(times_ms)} ranks {median_ms:.1f} ms"
    times = int(100 * times_ms[rank] / median_ms) if median_ms > 0 else None
    return event("slowest", name, rank=rank, number=times, text=said)


def _stragglers(line: Line) -> list[Found]:
    """The ranks that a detector names."""
    if found := _EXTREMES.search(line.text):
        least, most = float(found["least"]), float(found["most"])
        times = int(100 * most / least) if least > 0 else None
        said = f"its throughput is {found['least']} TFLOP/s, the highest {found['most']}"
        return [event("slowest", "compute", rank=int(found["rank"]), number=times, text=said)]
    named = _STRAGGLERS.search(line.text)
    ranks = {int(one) for one in _STRAGGLER.findall(named["list"])} if named else ()
    said = "the straggler detection names it"
    return [event("slowest", "stated", rank=rank, text=said) for rank in sorted(ranks)]


def _world(line: Line) -> list[Found]:
    """How many ranks the job has, if the line or a block of them states it."""
    if any(word in line.text for word in _OF_WORLD) and (found := _WORLD.search(line.text)):
        return [event("world", None, number=int(found[1]))]
    if "nodes" not in line.text:
        return []
    text = "\n".join([line.text, *line.below(5)])
    nodes, local = _NODES.search(text), _LOCAL.search(text)
    if nodes is None or local is None:
        return []
    size = int(nodes["nodes"] or nodes["least"]) * int(local[1] or local[2])
    return [event("world", None, number=size)]


def read(line: Line) -> Sequence[Found]:
    """What one line says of the job's progress, and of its size."""
    if len(line.text) > 2_000 or line.nccl or line.text.lstrip().startswith("File "):
        return []
    if "elapsed time per iteration" in line.text:
        return _steps_and_losses(line)  # the commonest line of all, and it says nothing else
    if _TIMERS in line.text:
        return _timers(line)
    if "STRAGGLER" in line.text or "MnEtpt" in line.text:
        return _stragglers(line)
    return [*_world(line), *_said(line)]


def _said(line: Line) -> Sequence[Found]:
    if _FINISHED.search(line.text):
        return [event("phase", "finished", text=line.text)]
    if steps := _steps_and_losses(line):
        return steps
    if _WORK_CHANGES.search(line.text):
        return [event("work", None, text=line.text)]
    for code, pattern in _PHASES:
        if pattern.search(line.text):
            return [event("phase", code, text=line.text)]
    return []


PROGRESS = Recogniser(
    "progress",
    (
        *("iteration", "step ", "step:", "step=", 'step":', 'iter":', "Step ", "iter ", "s/it"),
        *(_TIMERS, "STRAGGLER DETECTION", "MnEtpt/Rnk", "it/s", "Epoch: [", "Train Epoch: "),
        *("poch(train)", "Iter(train)", "Train: ", "num_updates", "[batch=", "global_step"),
        *(" - ETA: ", "ms/step", "atch size", "atch_size", "gradient_acc", "equence len"),
        *("'loss'", "sec/step", "SamplesPerSec", "samples/s", "tokens/s", "toks/s"),
        *("raining is done", "raining complete", "raining finished", "raining done"),
        *("done training in", "Training ended", "Trainer.fit", "train_runtime", "xiting "),
        *("xit_code", "exits successfully", "worker group successfully", "worker group finished"),
        *("' succeeded", "Successfully completed.", "heckpoint", "aving ", "Save ", "save_model"),
        *("model saved", "Model saved", "full model state", "valuation", "valuating", "alidati"),
        *("eval_loss", "valid loss", "world size", "world_size", "WORLD_SIZE", "um_processes"),
        *("um processes", "min_nodes", "--nnodes", "MEMBER: ", "Rank ", "lobal rank"),
    ),
    read,
)
