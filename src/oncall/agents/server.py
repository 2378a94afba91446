"""The MCP server: its tools, each a function with typed arguments and a documented answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from oncall import __version__
from oncall.agents import answers
from oncall.agents.bounded import MOST_ANSWER, MOST_TEXT, NOTICE, as_text, enveloped, quoted
from oncall.agents.evidence import NODES, GetFront, GetStacks, OpenEvidence
from oncall.console.evidence_queries import GetStepRows
from oncall.core.errors import OncallError
from oncall.core.printable import clean
from oncall.core.symptom import Symptom
from oncall.render.contract import document
from oncall.render.verdict_page import pages

INSTRUCTIONS = (
    "oncall finds the rank, node, link or stage that hangs or slows a distributed training job. "
    "Begin with `diagnose`; `result` inconclusive is no proof of health: look at its `suspects` "
    "first; `would_decide` says what to ask a person for. Read `front` and `step_rows` before you "
    f"trust a verdict. All tools only read. {NOTICE}"
)
_READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

_Evidence = Annotated[
    str,
    Field(
        description="A recording or folder of recordings, as a path under the roots of the server; "
        f"`{NODES}`: the nodes of running jobs, if the server may query them, as it does if this "
        "is left out; else the first root."
    ),
]
_Job = Annotated[str | None, Field(description="Which job, if there are several.")]


def make_server(evidence: OpenEvidence) -> MCPServer[Any]:
    """A server whose tools read `evidence`."""
    tools = _Tools(evidence)
    functions = (
        tools.list_jobs,
        tools.diagnose,
        tools.front,
        tools.step_rows,
        tools.list_rules,
        tools.show_rule,
        tools.explain_verdict,
        tools.stacks,
    )
    return MCPServer(
        "oncall",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=[_tool(function) for function in functions],
        log_level="WARNING",
    )


def _tool(function: Callable[..., CallToolResult]) -> Tool:
    tool = Tool.from_function(function, annotations=_READ_ONLY, structured_output=False)
    # The schema of oncall's own contract, not one that the SDK infers.
    tool.fn_metadata.output_schema = answers.answer_schema(tool.name)
    return tool


class _Tools:
    """The tools. The docstring of each is what an agent reads of it."""

    def __init__(self, evidence: OpenEvidence) -> None:
        self._evidence = evidence

    def list_jobs(self, evidence: _Evidence = "") -> CallToolResult:
        """List the jobs of some evidence: name, nodes, ranks, last evidence."""
        with self._asking() as asked:
            return _answer(answers.jobs_document(asked.jobs(evidence)))

    def diagnose(
        self,
        evidence: _Evidence,
        job: _Job = None,
        symptom: Annotated[
            Symptom,
            Field(description="What a person observed: it decides whether waiting is a hang."),
        ] = Symptom.UNKNOWN,
    ) -> CallToolResult:
        """Diagnose a job: findings with the culprit, the story, what was ruled out, what could not
        be seen, and what a person should do next. Reads the evidence anew."""
        with self._asking() as asked:
            return _answer(document(asked.diagnosed(evidence, job, symptom).diagnosis))

    def front(self, evidence: _Evidence, job: _Job = None) -> CallToolResult:
        """Show who waits for whom: the calls in which ranks are blocked where the evidence ends,
        and the ranks that never made them."""
        with self._asking() as asked:
            session, snapshot = asked.session(evidence, job)
            return _answer(answers.front_document(snapshot.job, session.ask(GetFront())))

    def step_rows(
        self,
        evidence: _Evidence,
        finding: Annotated[str, Field(description="Id of a finding of the diagnosis, as F1.")],
        step: Annotated[int, Field(ge=1, description="Number of a step of its story, from 1.")],
        job: _Job = None,
        limit: Annotated[int, Field(ge=1, le=200, description="Most rows.")] = 50,
    ) -> CallToolResult:
        """Show the rows of evidence behind a step of a finding's story, and the SQL that found
        them."""
        with self._asking() as asked:
            session, _ = asked.session(evidence, job)
            rows = session.ask(GetStepRows(finding, step - 1, limit))
            return _answer(answers.rows_document(rows))

    def list_rules(self) -> CallToolResult:
        """List the rulebooks in force, with the verdicts that each may reach."""
        with self._asking() as asked:
            return _answer(answers.rules_document(asked.rulebooks.lines(None)))

    def show_rule(
        self, name: Annotated[str, Field(description="A rulebook, such as hang.")]
    ) -> CallToolResult:
        """Show a rulebook as YAML: its facts in SQL, its tree of questions, its thresholds with
        the reason of each."""
        with self._asking() as asked:
            found: answers.RuleTextDocument = {"name": name, "yaml": asked.rulebooks.text(name)}
            return _answer(found, MOST_ANSWER)

    def explain_verdict(
        self, name: Annotated[str, Field(description="A verdict, such as H1 or faults.GPU_XID.")]
    ) -> CallToolResult:
        """Say what a verdict means, what it reads, what excludes it and what to do."""
        with self._asking() as asked:
            found: answers.VerdictDocument = {
                "name": name,
                "lines": "\n".join(pages(name, asked.rulebooks.rulebooks)).splitlines(),
            }
            return _answer(found)

    def stacks(self, evidence: _Evidence, job: _Job = None) -> CallToolResult:
        """Show the Python stacks that are in the evidence, equal ones together, the odd one out
        first. Takes no new stacks."""
        with self._asking() as asked:
            session, _ = asked.session(evidence, job)
            return _answer(answers.stacks_document(session.ask(GetStacks())))

    @contextmanager
    def _asking(self) -> Iterator[OpenEvidence]:
        """One request at a time; what a person could act on becomes the tool's error."""
        with self._evidence.lock:
            try:
                yield self._evidence
            except OncallError as error:
                raise ToolError(quoted(clean(str(error)))) from None


def _answer(found: Any, most_text: int = MOST_TEXT) -> CallToolResult:
    envelope = enveloped(found, most_text)
    text = TextContent(type="text", text=as_text(envelope))
    return CallToolResult(content=[text], structured_content=dict(envelope))
