"""Asks who the reader is before anything of the file is read, where the secrets configure sign-in.

    if closed := sign_in_page():
        closed()    # a page that says how to sign in, or that this reader may not

Without `[auth]` in `.streamlit/secrets.toml` everybody is admitted. With it, `st.login` brings the reader to the OpenID
Connect provider and back to the link that was opened. `[readers] allow = ["ann@example.com", "@example.org"]` admits
only these addresses and domains. `.streamlit/secrets.example.toml` shows all of it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

_REMEMBER, _RETURN = (
    # A provider sends everybody back to the first page; the tab knows which link it was to be.
    "export default () => sessionStorage.setItem('stepscope-link', location.href)",
    """export default () => {
      const link = sessionStorage.getItem("stepscope-link")
      sessionStorage.removeItem("stepscope-link")
      if (link && link !== location.href && new URL(link).origin === location.origin) location.replace(link)
    }""",
)


def sign_in_page() -> Callable[[], None] | None:
    """Returns what is drawn instead of every page for a reader who is not admitted; None for one who is."""
    try:
        secrets = read_secrets()
    except StreamlitSecretNotFoundError as error:
        print(f"Stepscope admits nobody: {error}", file=sys.stderr, flush=True)
        return _draw_unreadable
    if "auth" not in secrets:
        return None
    if not st.user.is_logged_in:
        return partial(_draw_sign_in, secrets["auth"])
    reader = st.user.to_dict()
    name = str(reader.get("email") or reader.get("name") or "Somebody without an address")
    if not may_read(reader, allow=secrets.get("readers", {}).get("allow")):
        return partial(_draw_refusal, name)
    st.components.v2.component("stepscope_return", js=_RETURN)(key="_return", height=1)
    with st.sidebar.container(key="_reader"):
        st.text(name)
        st.button("Sign out", on_click=st.logout, type="tertiary", key="_sign-out")
    return None


def may_read(reader: Mapping[str, Any], *, allow: Sequence[str] | None) -> bool:
    """Returns whether `reader`, as the provider describes them, is on the list of addresses and `@domains`; without a
    list all are."""
    if allow is None:
        return True
    address = str(reader.get("email") or "").casefold()
    if "@" not in address or reader.get("email_verified") is False:
        return False
    domain = "@" + address.rpartition("@")[2]
    return any(item.strip().casefold() in (address, domain) for item in ([allow] if isinstance(allow, str) else allow))


def read_secrets() -> dict[str, Any]:
    """Returns the secrets; nothing where there are none. Raises Streamlit's error for a file that cannot be read."""
    try:
        return dict(st.secrets)
    except StreamlitSecretNotFoundError as error:
        if error.error_id != "no-secrets-found":  # the same class stands for a broken file
            raise
        return {}


def _draw_sign_in(auth: Mapping[str, Any]) -> None:
    """Draws the page of somebody who has not signed in: one button a provider."""
    st.title("Sign in to read these results", anchor=False)
    st.markdown("Whoever runs this server shares its measurements with certain people only.")
    if "client_id" in auth:
        st.button("Sign in", on_click=st.login)
    for name, provider in auth.items():
        if isinstance(provider, Mapping) and "client_id" in provider:
            st.button(f"Sign in with {name.capitalize()}", on_click=st.login, args=(name,))
    st.components.v2.component("stepscope_link", js=_REMEMBER)(key="_link", height=1)


def _draw_refusal(name: str) -> None:
    st.title("You may not read these results", anchor=False)
    st.markdown("This server admits certain people only. Whoever runs it can add you; you signed in as:")
    st.text(name)
    st.button("Sign out", on_click=st.logout)


def _draw_unreadable() -> None:
    st.title("The server's secrets cannot be read", anchor=False)
    st.markdown("Until they can, nobody is admitted. The server's log says what is wrong with them.")


def signs_in() -> bool:
    """Returns whether the secrets configure sign-in. Secrets that cannot be read count as if they did."""
    try:
        return "auth" in read_secrets()
    except Exception:  # noqa: BLE001 - a broken secrets file must not open the rows to everybody
        return True
