# Contract: config/datasets.yaml names the corpora. Makes {ROOT}/{scale}/data/{dataset}/: the
# tokenizer (a dataset with a base takes over the base's), memory-mapped shards, their manifest.json (written last) and the frequent n-grams.


rule train_tokenizer:
    input:
        corpus=get_corpus,
        base=get_base_tokenizer,
    output:
        f"{ROOT}/{{scale}}/data/{{dataset}}/tokenizer.json",
    log:
        f"{ROOT}/{{scale}}/logs/train_tokenizer/{{dataset}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/train_tokenizer/{{dataset}}.tsv"
    params:
        cfg=get_dataset_slice,
        code=JOBS.code("train_tokenizer"),
    message:
        "Train the tokenizer of {wildcards.dataset}"
    shell:
        "difftransformer train_tokenizer --slice {params.cfg} --base '{input.base}'"
        " --output {output} --log {log}"


rule tokenise:
    input:
        corpus=get_corpus,
        tokenizer=get_tokenizer,
    output:
        f"{ROOT}/{{scale}}/data/{{dataset}}/manifest.json",
    log:
        f"{ROOT}/{{scale}}/logs/tokenise/{{dataset}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/tokenise/{{dataset}}.tsv"
    threads: lambda wildcards: JOBS.workers(wildcards.dataset, CORES)
    params:
        root=lambda wildcards: ROOT,
        cfg=get_dataset_slice,
        code=JOBS.code("tokenise"),
    message:
        "Tokenise {wildcards.dataset}"
    shell:
        "difftransformer tokenise --slice {params.cfg} --code {params.code} --output {output}"
        " --workers {threads} --results {params.root} --log {log}"


rule count_ngrams:
    input:
        f"{ROOT}/{{scale}}/data/{{dataset}}/manifest.json",
    output:
        ngrams=f"{ROOT}/{{scale}}/data/{{dataset}}/frequent_ngrams/{{suite}}.npy",
        sums=f"{ROOT}/{{scale}}/data/{{dataset}}/frequent_ngrams/{{suite}}.sha256.json",
    log:
        f"{ROOT}/{{scale}}/logs/count_ngrams/{{dataset}}/{{suite}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/count_ngrams/{{dataset}}/{{suite}}.tsv"
    params:
        cfg=get_ngrams_slice,
        code=JOBS.code("count_ngrams"),
    message:
        "Find the n-grams that are frequent in {wildcards.dataset}"
    shell:
        "difftransformer count_ngrams --slice {params.cfg} --dataset {input}"
        " --output {output.ngrams} --log {log}"
