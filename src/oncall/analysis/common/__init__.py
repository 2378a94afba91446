"""What every analysis starts from: operations, their members, and what no rank reported."""
