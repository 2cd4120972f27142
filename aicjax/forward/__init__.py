# SPDX-License-Identifier: Apache-2.0
"""Forward passes: a model bound to tables, its step times, and its memory."""
