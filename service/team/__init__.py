"""Parts that the processes of one server share: control, statistics and numbers as of one."""
