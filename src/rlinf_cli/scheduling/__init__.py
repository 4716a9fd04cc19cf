"""From measurements of components to the fastest execution: graph, profile, costs, search, simulation, explanation.

Pure: numbers and data; neither Ray nor torch, and nothing of the runtime. A `Plan` is what comes out.
"""
