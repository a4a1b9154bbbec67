"""Rules: on an event, if a condition holds, do something. The core, and rules on a bus; agents are in `tocsin.led`."""

from tocsin.rules.actions import Command, Webhook, command, webhook
from tocsin.rules.hosting import Rules
from tocsin.rules.loading import load
from tocsin.rules.rule import FAILED, Failure, Rule, rule
from tocsin.rules.schedule import Scheduler, Triggered

__all__ = [
    "FAILED",
    "Command",
    "Failure",
    "Rule",
    "Rules",
    "Scheduler",
    "Triggered",
    "Webhook",
    "command",
    "load",
    "rule",
    "webhook",
]
