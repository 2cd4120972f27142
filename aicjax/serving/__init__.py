# SPDX-License-Identifier: Apache-2.0
"""Serving modes: static batches, in-flight batching and disaggregated workers, from step latencies."""
