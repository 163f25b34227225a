//! A policy as types of utoipa. They are read from what [`Policy::openapi`]
//! gives, so that the two say the same.

use std::collections::BTreeMap;

use ::utoipa::openapi::{
    Components, OpenApi, Ref, RefOr, Response, Responses,
    path::{Operation, Parameter, ParameterIn},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Policy,
    headers::header_case,
    openapi::{KEY_EXTENSION, component},
};

#[cfg_attr(docsrs, doc(cfg(feature = "utoipa")))]
impl Policy {
    /// Adds this policy to an operation that it protects: the parameter that
    /// carries the key (or, for a key in the body, the extension that says so),
    /// the problem responses, and the headers that mark a replay and tell the
    /// record's expiry on the answers of the handler.
    ///
    /// What the operation says already is kept. Under a status that it
    /// describes, only those media types and headers are added that it does not
    /// have; a status that it describes by a range or by `default` gets a
    /// response of its own, which begins as that one. A parameter of the same
    /// name, and a response that is a reference, are left as they are.
    ///
    /// The responses refer to components, which
    /// [`document_components`](Self::document_components) adds to the document.
    ///
    /// ```
    /// use axum_idempotency::{Policy, PrincipalSource};
    /// use utoipa::OpenApi;
    ///
    /// /// Charges a card.
    /// #[utoipa::path(post, path = "/charges", responses((status = 201, description = "Charged")))]
    /// async fn charge() {}
    ///
    /// #[derive(OpenApi)]
    /// #[openapi(paths(charge))]
    /// struct Api;
    ///
    /// # fn main() -> Result<(), axum_idempotency::ConfigError> {
    /// let policy = Policy::builder(PrincipalSource::bearer()).build()?;
    /// let mut document = Api::openapi();
    /// policy.document_components(&mut document);
    /// let charges = document.paths.paths.get_mut("/charges");
    /// if let Some(charge) = charges.and_then(|path| path.post.as_mut()) {
    ///     policy.document(charge);
    /// }
    ///
    /// let json = serde_json::to_value(&document).expect("a document is JSON");
    /// let charge = &json["paths"]["/charges"]["post"];
    /// assert_eq!(charge["parameters"][0]["name"], "Idempotency-Key");
    /// assert_eq!(charge["responses"]["201"]["description"], "Charged");
    /// assert!(charge["responses"]["409"].is_object());
    /// # Ok(())
    /// # }
    /// ```
    pub fn document(&self, operation: &mut Operation) {
        if let Some(parameter) = self.utoipa_parameter() {
            let parameters = operation.parameters.get_or_insert_default();
            if !parameters.iter().any(|known| is_same(known, &parameter)) {
                parameters.push(RefOr::T(parameter));
            }
        }
        if let Some(key) = self.key_elsewhere() {
            let extensions = operation.extensions.get_or_insert_default();
            extensions.entry(KEY_EXTENSION.to_owned()).or_insert(key);
        }
        let responses = &mut operation.responses.responses;
        self.add_headers(responses);
        for (status, ours) in self.utoipa_responses().responses {
            let range = status.get(..1).map(|class| format!("{class}XX"));
            let range = range.and_then(|range| responses.get(&range));
            let wider = range.or_else(|| responses.get("default")).cloned();
            match (responses.get_mut(&status), wider) {
                (Some(theirs), _) => add_to(theirs, ours),
                (None, Some(mut wider @ RefOr::T(_))) => {
                    add_to(&mut wider, ours);
                    responses.insert(status, wider);
                }
                (None, _) => {
                    responses.insert(status, ours);
                }
            }
        }
    }

    /// Adds the components that [`document`](Self::document) refers to. Those
    /// that the document has under the same name are kept; several policies can
    /// share it.
    pub fn document_components(&self, document: &mut OpenApi) {
        let ours = self.utoipa_components();
        let components = document.components.get_or_insert_default();
        for (name, schema) in ours.schemas {
            components.schemas.entry(name).or_insert(schema);
        }
        for (name, header) in ours.headers {
            components.headers.entry(name).or_insert(header);
        }
    }

    /// The header that carries the key; `None` for a key in the body.
    pub fn utoipa_parameter(&self) -> Option<Parameter> {
        self.key_parameter().map(read)
    }

    /// The problem documents that this policy can answer with, by status.
    pub fn utoipa_responses(&self) -> Responses {
        read(self.problem_responses())
    }

    /// The schema of the problem documents, and the headers that the layer adds
    /// to what a handler answers.
    pub fn utoipa_components(&self) -> Components {
        read(self.components())
    }

    /// Any answer of the handler that is recorded may be replayed.
    fn add_headers(&self, responses: &mut BTreeMap<String, RefOr<Response>>) {
        let headers = self.response_headers();
        for (status, response) in responses {
            let status = status.parse::<http::StatusCode>();
            let is_recorded = status.map_or(true, |status| self.keeps(status));
            let RefOr::T(response) = response else {
                continue;
            };
            for (name, _) in headers.iter().filter(|_| is_recorded) {
                if !has_header(response, name.as_str()) {
                    let header = format!("#/components/headers/{}", component(name));
                    let header = RefOr::Ref(Ref::new(header));
                    response.headers.insert(header_case(name), header);
                }
            }
        }
    }
}

/// Names of headers are the same in any case.
fn is_same(known: &RefOr<Parameter>, ours: &Parameter) -> bool {
    let RefOr::T(known) = known else {
        return false;
    };
    matches!(known.parameter_in, ParameterIn::Header) && known.name.eq_ignore_ascii_case(&ours.name)
}

fn has_header(response: &Response, name: &str) -> bool {
    let mut names = response.headers.keys();
    names.any(|known| known.eq_ignore_ascii_case(name))
}

/// Ours where theirs says nothing.
fn add_to(theirs: &mut RefOr<Response>, ours: RefOr<Response>) {
    let (RefOr::T(theirs), RefOr::T(ours)) = (theirs, ours) else {
        return;
    };
    if theirs.description.is_empty() {
        theirs.description = ours.description;
    }
    for (name, header) in ours.headers {
        if !has_header(theirs, &name) {
            theirs.headers.insert(name, header);
        }
    }
    for (media_type, content) in ours.content {
        theirs.content.entry(media_type).or_insert(content);
    }
}

/// No text of a policy decides about the form of what is read here.
fn read<T: DeserializeOwned>(fragment: Value) -> T {
    serde_json::from_value(fragment).expect("a fragment of an OpenAPI document is one to utoipa")
}
