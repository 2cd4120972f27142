# SPDX-License-Identifier: Apache-2.0
"""Measured servers, what is predicted for them, and how far the two are apart."""
