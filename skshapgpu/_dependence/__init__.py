"""Exact partial dependence, individual conditional expectations, and statistics made of them."""
