"""SQLAlchemy 2: enqueue and commit in your session, and fenced sessions."""

from faultline.adapters.sqlalchemy.connections import user_connection
from faultline.adapters.sqlalchemy.fenced_session import FencedSession
from faultline.adapters.sqlalchemy.session_makers import use_sessions

__all__ = ["FencedSession", "use_sessions", "user_connection"]
