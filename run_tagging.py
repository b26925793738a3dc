#!/usr/bin/env python
r"""Tags the words of sentences: named entities of CoNLL-2003 (paper, section 5.3).

Fine-tune, evaluate on valid.txt and tag test.txt:

    python run_tagging.py --data_dir=/data/conll2003 --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict

With --feature_based, BERT's weights are frozen, and a BiLSTM is trained on its layers (table 7).
"""

from bert_tf.tasks import program

main = program.main_of("tagging")

if __name__ == "__main__":
    program.run(main)
