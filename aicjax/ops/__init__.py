# SPDX-License-Identifier: Apache-2.0
"""Operators: one family a module, its table, its roofline, its bind and its evaluation."""
