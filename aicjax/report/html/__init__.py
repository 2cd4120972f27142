# SPDX-License-Identifier: Apache-2.0
"""Answers as pages that people read: one file each, with everything in it."""
