"""Dumps of a small MediaWiki, made for tests."""

from xml.sax.saxutils import escape, quoteattr

_BEGIN = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo>
    <sitename>Wiki</sitename>
    <namespaces>
      <namespace key="-2" case="first-letter">Medium</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""


def page(
    title: str, *texts: str, ns: int = 0, redirect: str | None = None, model: str = "wikitext"
) -> str:
    """Returns a page with a revision for each text."""
    parts = [f"<title>{escape(title)}</title><ns>{ns}</ns><id>{len(title)}</id>"]
    if redirect is not None:
        parts.append(f"<redirect title={quoteattr(redirect)} />")
    for text in texts:
        parts.append(
            "<revision><contributor><username>A. User</username></contributor>"
            f"<comment>text</comment><model>{model}</model><format>text/x-wiki</format>"
            f'<text bytes="{len(text.encode())}" xml:space="preserve">{escape(text)}</text>'
            "<sha1>x</sha1></revision>"
        )
    return f"  <page>\n    {''.join(parts)}\n  </page>\n"


def dump(*pages: str) -> str:
    return f"{_BEGIN}{''.join(pages)}</mediawiki>\n"
