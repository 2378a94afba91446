"""Widgets, screens and apps of which a subclass must give parts."""

from __future__ import annotations

from abc import ABCMeta

from textual.message_pump import _MessagePumpMeta


class AbstractMeta(_MessagePumpMeta, ABCMeta):
    """The metaclass of a Textual class with abstract methods; textual has one of its own."""
