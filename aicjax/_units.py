# SPDX-License-Identifier: Apache-2.0
"""Conversions: inside the package time is milliseconds and size is bytes."""

MS_PER_S = 1e3
S_PER_HOUR = 3600.0
GB = 1e9
GIB = 2**30
MIB = 2**20
HOURS_PER_YEAR = 8760.0
PER_MILLION = 1e6
W_PER_KW = 1e3
USD_PER_KUSD = 1e3
PERCENT = 100.0
