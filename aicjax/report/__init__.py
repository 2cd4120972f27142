# SPDX-License-Identifier: Apache-2.0
"""What a person or a program reads of a result: tables, text plots, JSON, CSV files and the manifest of a run."""
