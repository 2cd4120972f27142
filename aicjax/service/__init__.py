# SPDX-License-Identifier: Apache-2.0
"""Answers about fleets over HTTP; needs the packages of the extra `serve`."""
