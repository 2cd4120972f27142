# SPDX-License-Identifier: Apache-2.0
"""Every point of a cross product: counts, best points and Pareto fronts, exact however the work is divided."""
