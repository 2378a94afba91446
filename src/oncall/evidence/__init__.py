"""Evidence: the schema, the incident that holds it, and the relations computed from it."""

from oncall.evidence.incident import Incident, Words
from oncall.evidence.relations import Param, Relation, decides, params_of, relation
from oncall.evidence.schema import SCHEMA_VERSION, TABLES, Column, Table

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Incident",
    "Param",
    "Relation",
    "Table",
    "Words",
    "decides",
    "params_of",
    "relation",
]
