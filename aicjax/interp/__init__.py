# SPDX-License-Identifier: Apache-2.0
"""The interpolation core: ragged grids, scattered sites, curves, and holds beyond their range."""
