# SPDX-License-Identifier: Apache-2.0
"""Deployment files from result rows: one record, rendered for a target, checked before anything is written."""
