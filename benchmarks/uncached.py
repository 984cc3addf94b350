"""Imported by benchmarks that time a compile: tables are fitted anew, here and in the processes that are started."""

import os

from transformula.constructions.tables.kept import VARIABLE

os.environ[VARIABLE] = "off"
