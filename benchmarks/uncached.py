"""Imported by benchmarks that time a compile: tables are fitted anew, here and in the processes that are started."""

import os

from transformula.compiler.tables.expression_fits import VARIABLE

os.environ[VARIABLE] = "off"
