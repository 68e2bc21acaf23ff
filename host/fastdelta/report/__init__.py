# SPDX-License-Identifier: Apache-2.0
"""One page of figures: what the engines achieve, beside the papers' tables.

`build_report` runs the benches and models and returns plain data, `render_page` makes one
self-contained HTML page of it. Every column of a table, and every line of a picture, says how its
figures came to be and which command gives them again.
"""
