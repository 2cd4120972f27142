# SPDX-License-Identifier: Apache-2.0
"""Searches over layouts, batches and worker counts."""
