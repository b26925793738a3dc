"""A hook of mkdocs: the site shows the notebooks in docs/ as pages, with what their cells gave."""

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


class NotebookPage(File):
    """A notebook under its own name, so that links to it also work on GitHub."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            text = as_markdown(nbformat.reads(file.content_string, as_version=4))
            page = NotebookPage(file.src_uri, None, config.site_dir, config.use_directory_urls)
            page.content_string = text
            files.append(page)
    return files


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    return "\n\n".join(part for cell in notebook.cells for part in parts(cell))


def parts(cell: nbformat.NotebookNode) -> list[str]:
    if cell.cell_type != "code":
        return [cell.source]
    return [f"```python\n{cell.source}\n```", *map(shown, cell.outputs)]


def shown(output: nbformat.NotebookNode) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![Output](data:image/png;base64,{data['image/png'].strip()})"
    text = output.get("text") or data.get("text/plain", "")
    return f"```\n{text.rstrip()}\n```"
