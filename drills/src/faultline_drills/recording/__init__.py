"""Records a drill: history of operations, worker events, tables in the database."""
