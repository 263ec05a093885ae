"""How the service is asked: one table, from which both the addresses and the OpenAPI document are made."""

from typing import Any, NamedTuple

from mann.installation import version
from mann.web.service import MOST_IMAGES, MOST_LETTERS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_LETTERS}
IMAGE: Schema = {
    "type": "string",
    "contentEncoding": "base64",
    "description": "A picture (PNG, JPEG, WebP, BMP or GIF) in base64.",
}
NOVELTY: Schema = {
    "description": "Whether something may be new: yes, no, or from which probability on.",
    "oneOf": [{"type": "boolean"}, {"type": "number", "minimum": 0, "maximum": 1}],
}
VERSION: Schema = {
    "type": "string",
    "description": "The version that this is meant for; it is refused (409) if the learner has another by now.",
}
EXAMPLE: Schema = {"type": "integer", "minimum": 1, "description": "The number of an example, from 1."}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": list(required)} if required else schema


def _list(items: Schema, most: int | None = None) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    return schema if most is None else schema | {"minItems": 1, "maxItems": most}


SCHEMAS: dict[str, Schema] = {
    "Error": _object(("error",), error={"type": "string", "description": "One sentence."}),
    "Learner": _object(
        ("id", "name", "version", "model", "created", "novelty", "threshold", "examples", "labels"),
        id={"type": "string"},
        name={"type": "string"},
        version={"type": "string"},
        model={"type": "string"},
        created={"type": "number", "description": "Seconds since 1970."},
        novelty=NOVELTY,
        threshold={
            "type": ["number", "null"],
            "description": "The probability from which on something is new; null: if no label is more probable.",
        },
        examples={"type": "integer"},
        labels=_list(_object(("label", "examples"), label=TEXT, examples={"type": "integer"})),
    ),
    "Learners": _object(
        ("learners",),
        learners=_list(
            _object(
                ("id", "name", "created", "examples"),
                id={"type": "string"},
                name={"type": "string"},
                created={"type": "number"},
                examples={"type": "integer"},
            )
        ),
    ),
    "Predictions": _object(
        ("predictions",),
        predictions=_list(
            _object(
                ("label", "probability", "new", "ranked"),
                label={"type": ["string", "null"], "description": "Null for something new."},
                probability={"type": "number"},
                new={"type": "number", "description": "The probability that this is something new."},
                ranked=_list(_object(("label", "probability"), label=TEXT, probability={"type": "number"})),
            )
        ),
    ),
    "Examples": _object(
        ("version", "examples"),
        version={"type": "string"},
        examples=_list(_object(("example", "label", "image"), example=EXAMPLE, label=TEXT, image=IMAGE)),
    ),
    "Deleted": _object(("deleted",), deleted={"type": "string"}),
    "Exported": {"type": "object", "description": "What OneShotLearner.from_json or the page reads."},
}


class Operation(NamedTuple):
    """One thing that can be asked."""

    name: str  # of the method of `Service`, and the operationId
    method: str
    path: str
    summary: str
    answer: str  # one of SCHEMAS
    body: Schema | None = None
    images: str = ""  # "predict" or "learn": pictures as JSON or multipart
    status: int = 200
    large: bool = False  # whether the body may be an exported learner


ONE = "/v1/learners/{id}"
LEARN = {
    "oneOf": [
        _object(("image", "label"), image=IMAGE, label=TEXT, version=VERSION),
        _object(
            ("examples",),
            examples=_list(_object(("image", "label"), image=IMAGE, label=TEXT), MOST_IMAGES),
            version=VERSION,
        ),
    ]
}
PREDICT = {
    "oneOf": [_object(("image",), image=IMAGE), _object(("images",), images=_list(IMAGE, MOST_IMAGES))]
}
OPERATIONS = (  # what is asked most comes first
    Operation(
        "predict",
        "POST",
        f"{ONE}/predict",
        "Ask it about pictures; this leaves no trace.",
        "Predictions",
        PREDICT,
        images="predict",
    ),
    Operation("listing", "GET", "/v1/learners", "List the learners.", "Learners"),
    Operation(
        "create",
        "POST",
        "/v1/learners",
        "Create a learner that knows nothing.",
        "Learner",
        _object(name=TEXT, seed={"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, novelty=NOVELTY),
        status=201,
    ),
    Operation(
        "take",
        "POST",
        "/v1/learners/import",
        "Create a learner from one that was exported, by this server, by Python or by the page.",
        "Learner",
        SCHEMAS["Exported"],
        status=201,
        large=True,
    ),
    Operation("get", "GET", ONE, "What a learner knows.", "Learner"),
    Operation(
        "change",
        "PATCH",
        ONE,
        "Change its name or its threshold of novelty.",
        "Learner",
        _object(name=TEXT, novelty=NOVELTY, version=VERSION),
    ),
    Operation("delete", "DELETE", ONE, "Delete a learner and all its examples.", "Deleted"),
    Operation("learn", "POST", f"{ONE}/learn", "Show it examples.", "Learner", LEARN, images="learn"),
    Operation(
        "forget",
        "POST",
        f"{ONE}/forget",
        "Forget a label with all its examples; without a label, everything.",
        "Learner",
        _object(label=TEXT, version=VERSION),
    ),
    Operation(
        "rename",
        "POST",
        f"{ONE}/rename",
        "Call a label by another name.",
        "Learner",
        _object(("label", "to"), label=TEXT, to=TEXT, version=VERSION),
    ),
    Operation(
        "relabel",
        "POST",
        f"{ONE}/relabel",
        "Give one example another label.",
        "Learner",
        _object(("example", "label"), example=EXAMPLE, label=TEXT, version=VERSION),
    ),
    Operation(
        "undo",
        "POST",
        f"{ONE}/undo",
        "Take back one example; without a number, the last.",
        "Learner",
        _object(example=EXAMPLE, version=VERSION),
    ),
    Operation("examples", "GET", f"{ONE}/examples", "Its examples, with what the network saw.", "Examples"),
    Operation("export", "GET", f"{ONE}/export", "All of it, to be imported elsewhere.", "Exported"),
)
PROBLEMS = {
    400: "The request makes no sense; the sentence says why.",
    401: "A token is missing or wrong.",
    403: "A page of another site asks.",
    404: "There is no such learner.",
    408: "The request took too long to arrive.",
    409: "The learner has another version by now.",
    413: "The request is too long.",
    415: "The request is of another type than JSON (or multipart/form-data, for pictures).",
    503: "Too many ask, or learners cannot be kept at the moment.",
}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mann",
            "version": version(),
            "summary": "Learners that know a thing from one example.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _describe(operation: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    if "{id}" in operation.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    if operation.name == "export":
        formats = {"type": "string", "enum": ["learner", "page"], "default": "learner"}
        parameters.append({"name": "format", "in": "query", "schema": formats})
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            str(operation.status): _content("Done.", operation.answer),
            **{str(status): _content(about, "Error") for status, about in PROBLEMS.items()},
        },
    }
    if operation.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": operation.body}}
        if operation.images:
            files: Schema = {"type": "string", "contentMediaType": "image/*"}
            properties = {"image": _list(files, MOST_IMAGES)}
            if operation.images == "learn":
                properties["label"] = _list(TEXT, MOST_IMAGES)
            content["multipart/form-data"] = {"schema": _object(tuple(properties), **properties)}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _content(about: str, schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": about, "content": {"application/json": {"schema": reference}}}
