"""Records a drill: the history of operations, worker events, and tables in the database."""
