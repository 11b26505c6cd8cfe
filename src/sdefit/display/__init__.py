"""What results and reports show themselves with: charts, matplotlib's drawing of them, and tables for a notebook."""
